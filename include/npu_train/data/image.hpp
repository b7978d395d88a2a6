/// Images as bytes, from the file to the batch. An Image is a window over pixels, so that cropping and mirroring cost nothing; the pixels
/// are copied only once, when a transform needs them or when they are written into the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace npu_train {

/// Memory layout: planes one after the other (R..., G..., B...), or four bytes per pixel (R, G, B, unused or the fourth channel).
enum class PixelOrder { Planar, Packed };

/// Layout of a program's pixels: the channels of a pixel next to each other, or one plane for each channel.
enum class ChannelLayout { Hwc, Chw };
/// The order of a program's colours.
enum class ChannelOrder { Rgb, Bgr };

/// Pixels in the memory of a program, 8 bits per channel, which are read in place, such as those of a cv::Mat or of an Eigen matrix in
/// row-major order.
struct ImageView {
  const uint8_t* data = nullptr;
  int64_t height = 0, width = 0;
  int64_t channels = 3;                       ///< 1 (gray), 3, or 4 (the last one, alpha, is ignored)
  int64_t row_stride = 0;                     ///< bytes from a row to the next one; 0: rows without gaps
  ChannelLayout layout = ChannelLayout::Hwc;  ///< Chw: plane c begins c * height * row_stride bytes after `data`
  ChannelOrder order = ChannelOrder::Rgb;
};

/// An image with 1 to 4 channels of uint8. Copies share the pixels.
class Image {
 public:
  Image() = default;

  /// Returns an image with its own, uninitialised pixels. Error(Data) if it is empty or has more than `kMaxPixels`.
  static Image allocate(int64_t height, int64_t width, int64_t channels, PixelOrder order = PixelOrder::Planar);
  /// Returns a planar image over the caller's memory, which must outlive every copy.
  static Image view(const uint8_t* planes, int64_t height, int64_t width, int64_t channels);
  /// Returns an RGB image over the caller's memory, which must outlive every copy. Gray fills all three channels, as in a decoded file.
  /// Error(Usage) if there are no pixels or more than `kMaxPixels`, for another number of channels, and for rows that overlap.
  static Image view(const ImageView& pixels);

  /// Limit for new and decoded images, since a small file can claim any size.
  static constexpr int64_t kMaxPixels = 100'000'000;

  bool empty() const { return data_ == nullptr; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  int64_t pixels() const { return height_ * width_; }

  /// Returns the window of the given size at (top, left). It may extend beyond the image, where values are 0. O(1).
  Image crop(int64_t top, int64_t left, int64_t height, int64_t width) const;
  /// Returns the image mirrored left to right. O(1).
  Image mirrored() const;

  /// Returns the image with its pixels stored in this order, without windows or mirroring; the image itself if it is already stored so.
  Image dense(PixelOrder order) const;
  /// Like dense(Planar), but the pixels are not shared, so that they may be changed. Dense pixels are copied only if they are shared.
  Image own() &&;

  /// Returns one value (slow; for tests and messages).
  uint8_t at(int64_t channel, int64_t y, int64_t x) const;

  // For dense images:
  bool is_dense(PixelOrder order) const;
  /// Returns the plane of a channel: rows of width() bytes without gaps. For dense planar images only.
  const uint8_t* plane(int64_t channel) const { return data_ + channel * plane_stride_; }
  uint8_t* mutable_plane(int64_t channel) { return const_cast<uint8_t*>(plane(channel)); }
  /// Returns a row of a dense packed image: width() pixels of four bytes.
  const uint8_t* packed_row(int64_t y) const { return data_ + y * row_stride_; }
  uint8_t* mutable_packed_row(int64_t y) { return const_cast<uint8_t*>(packed_row(y)); }

 private:
  friend void write_floats(const Image&, const struct FloatTarget&, const float*, const float*);

  const uint8_t* row(int64_t channel, int64_t y) const { return data_ + channel * plane_stride_ + y * row_stride_; }

  std::shared_ptr<uint8_t[]> owner_;  // null for a view
  const uint8_t* data_ = nullptr;
  PixelOrder order_ = PixelOrder::Planar;
  int64_t channels_ = 0;
  int64_t plane_stride_ = 0;
  int64_t row_stride_ = 0;
  int64_t pixel_stride_ = 1;
  // The window: height_ x width_ pixels from (top_, left_). Only the stored pixels in [y0_, y1_) x [x0_, x1_) are used, the rest is 0.
  int64_t height_ = 0, width_ = 0, top_ = 0, left_ = 0;
  int64_t y0_ = 0, y1_ = 0, x0_ = 0, x1_ = 0;
  bool mirrored_ = false;
};

/// Destination of an image in a batch: float [C, H, W] with contiguous planes, or [H, W, C] if the batch is channels_last.
struct FloatTarget {
  float* data = nullptr;
  int64_t height = 0, width = 0, channels = 0;
  bool channels_last = false;
};

/// Writes pixel * scale[c] + shift[c] for each channel; applies cropping, mirroring and zero padding in the same pass.
/// Error(Data) if the image does not have the target's size; an image with one channel fills a target with three.
void write_floats(const Image& image, const FloatTarget& target, const float* scale, const float* shift);

enum class Interpolation { Bilinear, Bicubic };

/// How pixels are resized. Both interpolations are antialiased: the filter (a triangle, or Keys' cubic with a = -0.5) widens with the
/// scale.
struct Resampling {
  Interpolation interpolation = Interpolation::Bilinear;
  /// True: Pillow's arithmetic, which gives the bits of torchvision's and timm's transforms of PIL images. Columns are resized before rows
  /// (after them if the height shrinks by more than twice the shrinkage of the width, as in Pillow 13), with 22-bit weights, and the result
  /// of the first pass is rounded to bytes; JPEG files are decoded at full size. False: bilinear resizing rounds once, which is faster, and
  /// a JPEG file is decoded at 1/2, 1/4 or 1/8 if that still has the requested number of pixels.
  bool exact = true;
};

/// Resizes the box [y0, y1) x [x0, x1) (fractions of pixels allowed) to height x width. The filter of each output pixel is centred on it,
/// cut at the box and normalised. Returns a dense planar image.
Image resize(const Image& image, int64_t height, int64_t width, const Resampling& how, double y0, double x0, double y1, double x1);
Image resize(const Image& image, int64_t height, int64_t width, const Resampling& how = {});

}  // namespace npu_train
