#pragma once

#include <filesystem>

namespace npu_train::detail {

/// The folder of the shared library, or of the program, that holds `address`; empty when that cannot be told.
std::filesystem::path library_folder(const void* address);

}  // namespace npu_train::detail
