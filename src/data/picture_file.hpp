// Files of images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace npu_train::detail {

// By the extension: .jpg, .jpeg, .png, in any case.
bool is_picture_name(const std::filesystem::path& path);

// The bytes of a file of at most 512 MiB. Error(Data), which begins with `from`, for a larger one, Error(Data) if it cannot be read.
std::vector<uint8_t> read_picture_file(const std::filesystem::path& path, const char* from);

}  // namespace npu_train::detail
