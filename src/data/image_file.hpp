// Names and content of image files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace npu_train::detail {

// True for the extensions .jpg, .jpeg and .png in any case.
bool is_image_name(const std::filesystem::path& path);

// Returns the bytes of a file. Error(Data), which begins with `from`, if it is larger than 512 MiB; Error(Data) if it cannot be read.
std::vector<uint8_t> read_image_file(const std::filesystem::path& path, const char* from);

}  // namespace npu_train::detail
