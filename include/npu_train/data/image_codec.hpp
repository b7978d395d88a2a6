/// Decoding of JPEG, PNG, WebP and BMP files; encoding of JPEG and PNG. Hostile input causes an Error(Data), never a crash or unbounded
/// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image.hpp"

namespace npu_train {

/// The header of a file.
struct ImageHeader {
  enum class Format { Jpeg, Png, Webp, Bmp } format;
  int64_t height = 0, width = 0;
  /// Number of channels in the file: 1 gray, 2 gray and alpha, 3 colours, 4 colours and alpha, or CMYK in a JPEG. A file with a palette has
  /// 3, whatever its colours.
  int64_t channels = 0;
  int64_t bits = 8;      ///< bits of a channel (in a BMP, of the widest one), or of an index into the palette
  bool palette = false;  ///< the file stores indices of colours
};

/// A rectangle of pixels.
struct PixelBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

/// A decoded part of an image. `image` covers the requested box, possibly with a margin and at a smaller scale; the box is [y0, y1) x [x0,
/// x1) in `image`.
struct DecodedBox {
  Image image;
  double y0 = 0, x0 = 0, y1 = 0, x1 = 0;
};

/// Reads the header. Error(Data) if the file is of another format, is damaged, or claims more than Image::kMaxPixels.
ImageHeader read_header(const std::vector<uint8_t>& file, const std::string& where);

/// Decodes the complete image, or the first frame of an animation, to packed RGB. Grayscale, palette, CMYK, 16 bits and transparency are
/// converted (alpha is dropped). Error(Data) for a damaged or truncated file.
Image decode_image(const std::vector<uint8_t>& file, const std::string& where);

/// Decodes the part needed to resize `box` to about `height` x `width`: only that region of a JPEG, at 1/2, 1/4 or 1/8 if that still has at
/// least the requested number of pixels. Rows below the box are not decoded, but the end of the file is checked.
DecodedBox decode_box(const std::vector<uint8_t>& file, const std::string& where, const PixelBox& box, int64_t height, int64_t width);

/// Returns an image of one channel (gray), three (RGB) or four (RGBA) as a PNG file, from which decode_image() returns the same colours.
/// Error(Usage) for another number of channels.
std::vector<uint8_t> encode_png(const Image& image);
/// Returns an image of one channel or three as a JPEG file of this quality, 1 to 100. Error(Usage) for another number of channels or
/// quality.
std::vector<uint8_t> encode_jpeg(const Image& image, int quality);

}  // namespace npu_train
