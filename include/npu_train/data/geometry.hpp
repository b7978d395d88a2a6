/// Transforms that move pixels. Names, defaults and distributions are torchvision's.
#pragma once

#include <cstdint>
#include <vector>

#include "npu_train/data/image_codec.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// Antialiased resize, either of the shorter side to `size` (the other in proportion, rounded down) or of both sides.
class Resize final : public Transform {
 public:
  explicit Resize(int64_t shorter_side, Resampling how = {});
  Resize(int64_t height, int64_t width, Resampling how = {});
  Image apply(Image image, Philox& rng) const override;
  Image apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const override;
  ImageSize output_size(ImageSize in) const override;
  /// Non-null only if images already have the output size.
  std::shared_ptr<const DeviceForm> device_form(int64_t channels, ImageSize in) const override;

 private:
  int64_t height_, width_;  // width_ 0: shorter side
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

/// Rotates around the centre by an angle within +- degrees, nearest pixel, 0 outside.
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

/// Computes out(y, x) = in(m[3] x + m[4] y + m[5], m[0] x + m[1] y + m[2]) at pixel centres (the inverse map, as in Pillow); nearest pixel,
/// `fill` outside.
Image affine_nearest(const Image& image, const double (&m)[6], uint8_t fill = 0);
/// Rotates counter-clockwise by `degrees` around the centre.
Image rotate_nearest(const Image& image, double degrees, uint8_t fill = 0);

}  // namespace npu_train
