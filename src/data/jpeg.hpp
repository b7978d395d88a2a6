/// libjpeg-turbo behind C++: errors are exceptions, and what ends early is an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {

bool is_jpeg(const std::vector<uint8_t>& file);
ImageHeader jpeg_header(const std::vector<uint8_t>& file, const std::string& where);
/// The box at 1/denominator (1, 2, 4 or 8).
DecodedBox decode_jpeg(const std::vector<uint8_t>& file, const std::string& where, const PixelBox& box, int denominator);

}  // namespace npu_train::detail
