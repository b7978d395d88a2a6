/// Shared objects that the library loads when a run asks for them.
#pragma once

#include <filesystem>
#include <string>

namespace npu_train {

/// Loads `file`, a shared object of npu_train such as "libnpu_train_sim_npu.so", permanently: from the folder that NPU_TRAIN_PLUGIN_DIR
/// names, or next to the library or program that contains this code (../lib/npu_train, npu_train, .), or from where the system's loader
/// looks. nullptr if it is in none of these places; `tried` gets each place, or the loader's reason.
void* open_plugin(const std::string& file, std::string& tried);

/// The folder of the shared library or program that contains `address`; empty if it cannot be determined.
std::filesystem::path library_folder(const void* address);

}  // namespace npu_train
