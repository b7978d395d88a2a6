/// Transforms of images by name: those that move pixels, those that change values, RandAugment and random erasing. Names, defaults and
/// distributions are torchvision's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "npu_train/data/image_codec.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

// Transforms that move pixels.

/// Antialiased resize, either of the shorter side to `size` (the other in proportion, rounded down) or of both sides.
class Resize final : public Transform {
 public:
  explicit Resize(int64_t shorter_side, Resampling how = {});
  Resize(int64_t height, int64_t width, Resampling how = {});
  Image apply(Image image, Philox& rng) const override;
  Image apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const override;
  ImageSize output_size(ImageSize in) const override;
  /// Returns null unless images already have the output size.
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;

 private:
  int64_t height_, width_;  // width_ is 0 if height_ is the length of the shorter side
  Resampling how_;
};

/// Crops the centre of `size` x `size` pixels; a smaller image is padded with 0.
class CenterCrop final : public Transform {
 public:
  explicit CenterCrop(int64_t size);
  Image apply(Image image, Philox& rng) const override;
  ImageSize output_size(ImageSize /*in*/) const override { return {size_, size_}; }
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;
  /// Returns the window for an image of this size; it may extend beyond the image.
  PixelBox window(int64_t height, int64_t width) const;

 private:
  int64_t size_;
};

/// Pads each side with `padding` zeros, then crops a random window of `size` x `size` pixels.
/// Error(Data) for an image that is smaller than the window even with padding.
class RandomCrop final : public Transform {
 public:
  RandomCrop(int64_t size, int64_t padding);
  Image apply(Image image, Philox& rng) const override;
  ImageSize output_size(ImageSize /*in*/) const override { return {size_, size_}; }
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;
  /// Draws the window for an image of this size; it may extend beyond the image by the padding.
  PixelBox draw(int64_t height, int64_t width, Philox& rng) const;

 private:
  int64_t size_, padding_;
};

/// Crops a box with random area and aspect ratio ("Inception crop", Szegedy et al. 2015) and resizes it to `size` x `size`. Unless the
/// resampling is exact, JPEG files are decoded only inside the box.
class RandomResizedCrop final : public Transform {
 public:
  explicit RandomResizedCrop(int64_t size, double min_scale = 0.08, double max_scale = 1, double min_ratio = 3.0 / 4,
                             double max_ratio = 4.0 / 3, Resampling how = {});
  Image apply(Image image, Philox& rng) const override;
  Image apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const override;
  ImageSize output_size(ImageSize /*in*/) const override { return {size_, size_}; }
  /// Draws the box for an image of this size: ten attempts, then a central box with the nearest allowed ratio.
  PixelBox draw(int64_t height, int64_t width, Philox& rng) const;

 private:
  int64_t size_;
  double min_scale_, max_scale_, min_log_ratio_, max_log_ratio_;
  Resampling how_;
};

/// Mirrors with probability p.
class HorizontalFlip final : public Transform {
 public:
  explicit HorizontalFlip(double p = 0.5) : p_(p) {}
  Image apply(Image image, Philox& rng) const override;
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;
  bool draw(Philox& rng) const { return rng.uniform() < p_; }

 private:
  double p_;
};

/// Rotates around the centre by a random angle of at most `degrees` in either direction. Takes the nearest pixel, and 0 outside of the
/// image.
class RandomRotation final : public Transform {
 public:
  explicit RandomRotation(double degrees) : degrees_(degrees) {}
  Image apply(Image image, Philox& rng) const override;
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;
  /// Draws the angle in degrees.
  double draw(Philox& rng) const { return rng.uniform(static_cast<float>(-degrees_), static_cast<float>(degrees_)); }

 private:
  double degrees_;
};

/// Computes out(y, x) = in(m[3] x + m[4] y + m[5], m[0] x + m[1] y + m[2]) at pixel centres (the inverse map, as in Pillow). Takes the
/// nearest pixel, and `fill` outside of the image.
Image affine_nearest(const Image& image, const double (&m)[6], uint8_t fill = 0);
/// Rotates counter-clockwise by `degrees` around the centre.
Image rotate_nearest(const Image& image, double degrees, uint8_t fill = 0);

// Transforms that change values. The arithmetic on bytes is Pillow's, except for hue, which is not rounded to a byte in between.

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
  /// The changes of one image, in order. `amount` is indexed by change: a factor, or for Hue a fraction of the circle. A change with
  /// strength 0 is not applied.
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

// Stronger augmentation: RandAugment (Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space",
// 2019) and random erasing (Zhong et al., "Random Erasing Data Augmentation", 2017).

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
