/// Transforms that change values. Names, defaults and distributions are torchvision's; the arithmetic on bytes is Pillow's, except for hue,
/// which is not rounded to a byte in between.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "npu_train/data/transform.hpp"

namespace npu_train {

/// Blend with black: value * factor.
Image adjust_brightness(Image image, float factor);
/// Blend with the mean brightness of the image.
Image adjust_contrast(Image image, float factor);
/// Blend with the grayscale image.
Image adjust_saturation(Image image, float factor);
/// Shifts the hue by `turns` of a circle, -0.5 to 0.5. Grayscale images are unchanged.
Image adjust_hue(Image image, float turns);
/// Brightness of a pixel (ITU-R 601-2 in 16-bit fixed point).
inline uint8_t luma(int r, int g, int b) { return static_cast<uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16); }

/// Jitter with factors uniform in [max(0, 1 - x), 1 + x] and a hue shift in [-x, x]; the order of the changes is drawn per image.
class ColorJitter final : public Transform {
 public:
  /// Error(Usage) for a negative strength or a hue above 0.5.
  ColorJitter(double brightness, double contrast, double saturation, double hue);
  Image apply(Image image, Philox& rng) const override;
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;

  enum Change { Brightness, Contrast, Saturation, Hue, kChanges };
  /// The changes of one image, in order. `amount` by change: a factor, or a fraction of the circle; a change with strength 0 is omitted.
  struct Draw {
    std::array<int, kChanges> order;
    std::array<float, kChanges> amount;
  };
  Draw draw(Philox& rng) const;
  bool does(int change) const { return strength_[static_cast<size_t>(change)] > 0; }

 private:
  std::array<float, kChanges> strength_;
};

/// Gaussian blur with a kernel of `kernel` (odd) pixels and sigma uniform in [min_sigma, max_sigma]; edges are mirrored.
class GaussianBlur final : public Transform {
 public:
  explicit GaussianBlur(int64_t kernel = 3, double min_sigma = 0.1, double max_sigma = 2.0);
  Image apply(Image image, Philox& rng) const override;
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;
  /// Draws sigma.
  double draw(Philox& rng) const { return rng.uniform(static_cast<float>(min_sigma_), static_cast<float>(max_sigma_)); }
  int64_t kernel() const { return kernel_; }

 private:
  int64_t kernel_;
  double min_sigma_, max_sigma_;
};
Image gaussian_blur(const Image& image, int64_t kernel, double sigma);
/// Returns `kernel` weights that add up to 1.
std::vector<float> gaussian_weights(int64_t kernel, double sigma);

}  // namespace npu_train
