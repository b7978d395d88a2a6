#pragma once

#include <filesystem>

namespace npu_train::detail {

/// The folder of the shared library or program that contains `address`; empty if it cannot be determined.
std::filesystem::path library_folder(const void* address);

}  // namespace npu_train::detail
