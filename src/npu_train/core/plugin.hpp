/// Shared objects that the library loads on demand.
#pragma once

#include <filesystem>
#include <string>

namespace npu_train {

/// Loads `file`, a shared object of npu_train such as "libnpu_train_sim_npu.so", permanently. Searches the folder NPU_TRAIN_PLUGIN_DIR,
/// then ../lib/npu_train, npu_train and . relative to the library or program that contains this code, then the paths of the system's
/// loader. Returns nullptr if no file can be loaded; `tried` then lists each missing path, and the loader's reason for each other path.
void* open_plugin(const std::string& file, std::string& tried);

/// Returns the folder of the shared library or program that contains `address`; empty if unknown.
std::filesystem::path library_folder(const void* address);

}  // namespace npu_train
