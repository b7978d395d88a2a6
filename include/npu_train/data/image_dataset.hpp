/// Data sets of labelled images: they provide bytes, and the loader's workers decode and transform them directly into the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/dataset.hpp"
#include "npu_train/data/image.hpp"

namespace npu_train {

/// A labelled image before the transforms: pixels, or the bytes of an image file (image_codec.hpp), which is decoded when the required part
/// and size are known.
struct LabelledImage {
  Image pixels;                  ///< empty if `encoded` is used
  std::vector<uint8_t> encoded;  ///< a complete image file
  int64_t label = 0;
  std::vector<float> targets{};  ///< ImageDataset::targets() numbers in place of the label
};

/// Images with one label, or a number of targets, each. `get` returns the untransformed image, as uint8 [C, H, W].
class ImageDataset : public Dataset {
 public:
  /// Returns image `index`. Called from several threads at once.
  virtual LabelledImage image(int64_t index) const = 0;
  /// Returns the length of LabelledImage::targets: a batch then has targets [N, targets()] of fp32. 0: labels, targets [N] of int64.
  virtual int64_t targets() const { return 0; }
  /// Whether the targets are numbers, and not 0 to 1 for each class.
  virtual bool has_numbers() const { return false; }
  Sample get(int64_t index) const override;
};

/// Images of one size in memory.
class MemoryImages : public ImageDataset {
 public:
  /// `pixels` contains labels.size() images of channels x height x width bytes, in planes.
  /// Error(Usage) if the sizes do not match or a label is outside [0, info.num_classes).
  MemoryImages(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  LabelledImage image(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  int64_t label(int64_t index) const override { return labels_.at(static_cast<size_t>(index)); }
  const std::vector<int64_t>& labels() const { return labels_; }
  /// The bytes of one image.
  const uint8_t* pixels(int64_t index) const { return pixels_.data() + index * bytes_; }
  int64_t image_bytes() const { return bytes_; }

 protected:
  MemoryImages() = default;
  void assign(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info);

 private:
  std::vector<uint8_t> pixels_;
  std::vector<int64_t> labels_;
  DatasetInfo info_;
  int64_t bytes_ = 0;
};

}  // namespace npu_train
