#include "npu_train/data/image_dataset.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "npu_train/core/error.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/data/image_stream.hpp"

namespace npu_train {

Sample decoded_sample(const LabelledImage& image, const std::string& where, bool targets, int64_t index) {
  const Image pixels = (image.pixels.empty() ? decode_image(image.encoded, where) : image.pixels).dense(PixelOrder::Planar);
  at::Tensor input = at::empty({pixels.channels(), pixels.height(), pixels.width()}, at::kByte);
  std::memcpy(input.data_ptr(), pixels.plane(0), input.nbytes());
  return {{{"input", std::move(input)}, {"target", targets ? at::tensor(image.targets) : at::scalar_tensor(image.label, at::kLong)}},
          index};
}

Sample ImageDataset::get(int64_t index) const { return decoded_sample(image(index), where(index), targets() > 0, index); }

std::optional<Sample> ImageStream::next() {
  const auto image = next_image();
  if (!image) return std::nullopt;
  return decoded_sample(image->read(), image->where, /*targets=*/false, -1);
}

MemoryImages::MemoryImages(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info) {
  assign(std::move(pixels), std::move(labels), std::move(info));
}

void MemoryImages::assign(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info) {
  check(info.shape.size() == 3, ErrorKind::Usage, "MemoryImages", "the shape must be channels, height, width");
  const int64_t bytes = info.shape[0] * info.shape[1] * info.shape[2];
  check(bytes > 0 && pixels.size() == labels.size() * static_cast<size_t>(bytes), ErrorKind::Usage, "MemoryImages", pixels.size(),
        " bytes are not ", labels.size(), " images of ", bytes, " bytes");
  for (size_t i = 0; i < labels.size(); ++i) {
    check(labels[i] >= 0 && labels[i] < info.num_classes, ErrorKind::Usage, "MemoryImages", "image ", i, " has the label ", labels[i],
          "; allowed: 0 to ", info.num_classes - 1);
  }
  pixels_ = std::move(pixels);
  labels_ = std::move(labels);
  info_ = std::move(info);
  bytes_ = bytes;
}

LabelledImage MemoryImages::image(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, "MemoryImages", "image ", index, " of ", size());
  return {Image::view(pixels(index), info_.shape[1], info_.shape[2], info_.shape[0]), {}, labels_[index]};
}

}  // namespace npu_train
