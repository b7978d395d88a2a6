/// libwebp behind C++.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {

bool is_webp(const std::vector<uint8_t>& file);
ImageHeader webp_header(const std::vector<uint8_t>& file, const std::string& where);
/// Of an animation the first frame, on black, as Pillow gives it.
Image decode_webp(const std::vector<uint8_t>& file, const std::string& where);

}  // namespace npu_train::detail
