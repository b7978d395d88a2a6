/// Converts image files, and pixels of a program, to inputs of a classifier, with the transforms of its validation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/transform.hpp"

namespace npu_train {

class ImagePreparation {
 public:
  /// Uses the transforms of a configuration; `context.image_size` is the side of the square that they produce. An image of this size skips
  /// the steps `resize`. Error(Usage) as in Pipeline::from_config.
  ImagePreparation(std::vector<PartConfig> steps, const TransformContext& context,
                   const TransformRegistry& transforms = builtin_transforms());
  /// Returns ImageNet's preparation: resizes the shorter side to 256/224 of `side`, crops the centre, and normalises by `mean` and `std`
  /// (per channel, for values in [0, 1]).
  static ImagePreparation of_imagenet(int64_t side, const std::vector<double>& mean = imagenet_mean(),
                                      const std::vector<double>& std = imagenet_std());

  /// Parses the output of steps_text(). Error(Usage) if it is invalid.
  static ImagePreparation from_text(const std::string& steps, const TransformContext& context,
                                    const TransformRegistry& transforms = builtin_transforms());

  static const std::vector<double>& imagenet_mean();
  static const std::vector<double>& imagenet_std();

  /// Returns an image file as float32 [3, height, width], normalised. Error(Data) if it cannot be read.
  at::Tensor read(const std::string& path) const;
  /// Returns pixels of a program as read() returns a file with the same ones, bit for bit, unless files are decoded at a smaller scale
  /// (Resampling::exact, which is the default). They are only read, and only during the call. Error(Usage) as in Image::view.
  at::Tensor prepare(const ImageView& pixels) const;
  /// Returns the image without normalisation: uint8 [height, width, 3], RGB. Error(Data) if it cannot be read.
  at::Tensor read_bytes(const std::string& path) const;

  const std::vector<PartConfig>& steps() const { return steps_; }
  /// Returns the steps as YAML, as in a configuration: "[{name: resize, size: 36}, {name: center_crop, size: 32}, normalize]".
  std::string steps_text() const;
  const Pipeline& pipeline() const { return pipeline_; }

 private:
  template <class Run>
  auto run(const std::string& path, const Run& use) const;
  const Pipeline& pipeline_for(int64_t height, int64_t width) const {
    return height == side_ && width == side_ ? without_resize_ : pipeline_;
  }

  std::vector<PartConfig> steps_;
  Pipeline pipeline_, without_resize_;
  int64_t side_;
};

}  // namespace npu_train
