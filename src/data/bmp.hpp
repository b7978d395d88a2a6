/// Reads BMP files of Windows and OS/2. No library that the project uses can read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {

bool is_bmp(const std::vector<uint8_t>& file);
ImageHeader bmp_header(const std::vector<uint8_t>& file, const std::string& where);
/// Reads files with 1, 4, 8, 16, 24 and 32 bits per pixel, with bit masks, RLE4 and RLE8, and with the top or the bottom row first. Alpha
/// is dropped.
Image decode_bmp(const std::vector<uint8_t>& file, const std::string& where);

}  // namespace npu_train::detail
