/// A C++ interface to libjpeg-turbo: errors become exceptions, and truncated files are errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {

bool is_jpeg(const std::vector<uint8_t>& file);
ImageHeader jpeg_header(const std::vector<uint8_t>& file, const std::string& where);
/// Decodes the box at 1/denominator (1, 2, 4 or 8).
DecodedBox decode_jpeg(const std::vector<uint8_t>& file, const std::string& where, const PixelBox& box, int denominator);

}  // namespace npu_train::detail
