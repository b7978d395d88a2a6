/// A C++ interface to libwebp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {

bool is_webp(const std::vector<uint8_t>& file);
ImageHeader webp_header(const std::vector<uint8_t>& file, const std::string& where);
/// Returns the image, or the first frame of an animation on black, as Pillow does.
Image decode_webp(const std::vector<uint8_t>& file, const std::string& where);

}  // namespace npu_train::detail
