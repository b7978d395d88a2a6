/// BMP files of Windows and OS/2, read by hand: no library that the project uses has a reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {

bool is_bmp(const std::vector<uint8_t>& file);
ImageHeader bmp_header(const std::vector<uint8_t>& file, const std::string& where);
/// Reads 1, 4, 8, 16, 24 and 32 bits per pixel, bit masks, RLE4 and RLE8, from the bottom or from the top. Alpha is dropped.
Image decode_bmp(const std::vector<uint8_t>& file, const std::string& where);

}  // namespace npu_train::detail
