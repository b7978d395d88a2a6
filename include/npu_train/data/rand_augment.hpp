/// Stronger augmentation: RandAugment (Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space",
/// 2019) and random erasing (Zhong et al., "Random Erasing Data Augmentation", 2017).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "npu_train/data/image_codec.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// `num_ops` operations per image, each drawn uniformly from 14 (identity, shear and shift in x and y, rotation, brightness, saturation,
/// contrast, sharpness, posterise, solarise, autocontrast, equalise) at strength `magnitude` of 30, with torchvision's ranges.
class RandAugment final : public Transform {
 public:
  explicit RandAugment(int64_t num_ops = 2, int64_t magnitude = 9);
  Image apply(Image image, Philox& rng) const override;

 private:
  int64_t num_ops_;
  double strength_;
};

/// With probability p, fills a box of random area and shape with one colour: `mean` (in [0, 1], which is 0 after normalisation) or black.
class RandomErasing final : public Transform {
 public:
  explicit RandomErasing(double p = 0.5, double min_scale = 0.02, double max_scale = 0.33, double min_ratio = 0.3, double max_ratio = 3.3,
                         std::vector<double> mean = {});
  Image apply(Image image, Philox& rng) const override;
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;
  /// Draws the box for an image of this size; nullopt: no erasing.
  std::optional<PixelBox> draw(int64_t height, int64_t width, Philox& rng) const;
  /// Returns the value of channel c in the box.
  uint8_t fill(int64_t c) const;

 private:
  double p_, min_scale_, max_scale_, min_log_ratio_, max_log_ratio_;
  std::vector<double> mean_;
};

// Operations that only RandAugment uses.
/// Blend with a smoothed image (weights 1 1 1 / 1 5 1 / 1 1 1; the border is unchanged): a factor above 1 sharpens.
Image adjust_sharpness(Image image, float factor);
/// Keeps the upper `bits` of each value.
Image posterize(Image image, int bits);
/// Inverts values of at least `threshold`.
Image solarize(Image image, float threshold);
/// Stretches the range of each channel to 0..255.
Image autocontrast(Image image);
/// Equalises the histogram of each channel.
Image equalize(Image image);

}  // namespace npu_train
