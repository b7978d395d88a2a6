/// Data sets of labelled pictures: they give bytes, and the loader's workers decode and transform them straight into the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/dataset.hpp"
#include "npu_train/data/image.hpp"

namespace npu_train {

/// A labelled picture before the transforms: pixels, or the bytes of a JPEG or PNG file that are decoded when it is known which part and
/// which size is wanted.
struct Picture {
  Image pixels;                  ///< empty when `encoded` is used
  std::vector<uint8_t> encoded;  ///< a whole JPEG or PNG file
  int64_t label = 0;
};

/// Pictures with one label each. `get` gives the picture untransformed, as uint8 [C, H, W].
class PictureDataset : public Dataset {
 public:
  /// Picture `index`; called from several threads at once.
  virtual Picture picture(int64_t index) const = 0;
  Sample get(int64_t index) const override;
};

/// Pictures of one size in memory.
class MemoryPictures : public PictureDataset {
 public:
  /// `pixels` holds labels.size() pictures of channels x height x width bytes, planes in order.
  /// Error(Usage) when the sizes do not fit or a label is outside [0, info.num_classes).
  MemoryPictures(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  Picture picture(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  const std::vector<int64_t>& labels() const { return labels_; }
  /// The bytes of one picture.
  const uint8_t* pixels(int64_t index) const { return pixels_.data() + index * bytes_; }
  int64_t picture_bytes() const { return bytes_; }

 protected:
  MemoryPictures() = default;
  void assign(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info);

 private:
  std::vector<uint8_t> pixels_;
  std::vector<int64_t> labels_;
  DatasetInfo info_;
  int64_t bytes_ = 0;
};

}  // namespace npu_train
