#include "npu_train/engine/predictor.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "npu_train/core/config_node.hpp"
#include "npu_train/core/config_table.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

constexpr int64_t kImagenetResize = 256, kImagenetCrop = 224;
constexpr uint64_t kMaxImageBytes = uint64_t{256} << 20;

std::vector<PartConfig> without_resize(std::vector<PartConfig> steps) {
  std::erase_if(steps, [](const PartConfig& step) { return step.name == "resize"; });
  return steps;
}

}  // namespace

const std::vector<double>& ImagePreparation::imagenet_mean() {
  static const std::vector<double> mean{0.485, 0.456, 0.406};
  return mean;
}

const std::vector<double>& ImagePreparation::imagenet_std() {
  static const std::vector<double> std{0.229, 0.224, 0.225};
  return std;
}

ImagePreparation::ImagePreparation(std::vector<PartConfig> steps, const TransformContext& context, const TransformRegistry& transforms)
    : steps_(std::move(steps)),
      pipeline_(Pipeline::from_config(steps_, "val_transforms", context, transforms)),
      without_resize_(Pipeline::from_config(without_resize(steps_), "val_transforms", context, transforms)),
      side_(context.image_size) {}

ImagePreparation ImagePreparation::of_imagenet(int64_t side, const std::vector<double>& mean, const std::vector<double>& std) {
  return {{part("resize", {{"size", side * kImagenetResize / kImagenetCrop}}), part("center_crop", {{"size", side}}), part("normalize")},
          {side, mean, std}};
}

ImagePreparation ImagePreparation::from_text(const std::string& steps, const TransformContext& context,
                                             const TransformRegistry& transforms) {
  std::vector<PartConfig> parts;
  ConfigProblems problems;
  detail::read_value(parse_yaml(steps, "transforms"), "transforms", {}, parts, problems);
  problems.throw_if_any();
  return {std::move(parts), context, transforms};
}

std::string ImagePreparation::steps_text() const { return to_yaml_line(detail::write_value(steps_)); }

// Calls use(pipeline, image file, generator).
template <class Run>
auto ImagePreparation::run(const std::string& path, const Run& use) const {
  const auto bytes = read_file(path, kMaxImageBytes);
  LabelledImage image;
  image.encoded.assign(bytes.begin(), bytes.end());
  const auto header = read_header(image.encoded, path);
  Philox unused(0);
  return use(pipeline_for(header.height, header.width), image, unused);
}

at::Tensor ImagePreparation::read(const std::string& path) const {
  return run(path, [&](const Pipeline& steps, const LabelledImage& given, Philox& rng) { return steps.run_to_tensor(given, path, rng); });
}

at::Tensor ImagePreparation::prepare(const ImageView& pixels) const {
  const LabelledImage image{Image::view(pixels), {}, 0};
  Philox unused(0);
  return pipeline_for(pixels.height, pixels.width).run_to_tensor(image, "an image in memory", unused);
}

at::Tensor ImagePreparation::read_bytes(const std::string& path) const {
  const auto image = run(path, [&](const Pipeline& steps, const LabelledImage& given, Philox& rng) {
                       return steps.run_to_bytes(given, path, rng);
                     }).dense(PixelOrder::Planar);
  auto out = at::empty({image.height(), image.width(), image.channels()}, at::kByte);
  auto* pixel = out.mutable_data_ptr<uint8_t>();
  for (int64_t p = 0; p < image.pixels(); ++p)
    for (int64_t c = 0; c < image.channels(); ++c) *pixel++ = image.plane(c)[p];
  return out;
}

}  // namespace npu_train
