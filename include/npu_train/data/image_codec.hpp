/// JPEG and PNG files to pictures. Hostile input gives an Error(Data), never a crash or unbounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image.hpp"

namespace npu_train {

/// What the header of a file says.
struct ImageHeader {
  enum class Format { Jpeg, Png } format;
  int64_t height = 0, width = 0;
};

/// A rectangle of pixels.
struct PixelBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

/// A part of a picture, decoded: `image` covers the box (and maybe some pixels around it), perhaps at a smaller scale. In `image`, the box
/// is [y0, y1) x [x0, x1).
struct DecodedBox {
  Image image;
  double y0 = 0, x0 = 0, y1 = 0, x1 = 0;
};

/// Reads the header. Error(Data) when it is neither JPEG nor PNG, is damaged, or claims more than Image::kMaxPixels.
ImageHeader read_header(const std::vector<uint8_t>& file, const std::string& where);

/// The whole picture as RGB, packed. Grayscale, palette, CMYK, 16 bits and transparency are converted (alpha is dropped).
/// Error(Data) for a damaged file; one that ends early is damaged.
Image decode_image(const std::vector<uint8_t>& file, const std::string& where);

/// What is needed to resize `box` to about `height` x `width`: a JPEG is decoded only there, and at 1/2, 1/4 or 1/8 when that still has at
/// least as many pixels as asked for. Rows below the box are not decoded, but the file's end is looked for.
DecodedBox decode_box(const std::vector<uint8_t>& file, const std::string& where, const PixelBox& box, int64_t height, int64_t width);

}  // namespace npu_train
