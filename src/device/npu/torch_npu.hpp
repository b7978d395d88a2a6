// Huawei's torch_npu as a shared object loaded at run time: compiling does not need it, and a machine without it gets an error message.
// Loading it registers libtorch's PrivateUse1 under the name npu (torch_npu/csrc/core/npu/impl/NPUGuardImpl.cpp); the device is not touched
// before its first use.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace npu_train::detail {

// Functions of torch_npu that libtorch's device-generic interface does not cover. nullptr: not provided by this build of torch_npu.
struct TorchNpu {
  std::string path;  // "" if the host program had already loaded it
  void (*init)(c10::DeviceIndex) = nullptr;
  void (*finalize)() = nullptr;
  // hooks.getDefaultGenerator is not overridden before 2.13, so at::manual_seed does not seed NPUs
  const at::Generator& (*default_generator)(c10::DeviceIndex) = nullptr;
  bool (*supports_inf_nan)() = nullptr;
  const char* (*soc_name)() = nullptr;                                  // CANN: aclrtGetSocName
  int (*memory_info)(int kind, size_t* free, size_t* total) = nullptr;  // CANN: aclrtGetMemInfo
};

// Loads the library if necessary, and looks up its symbols. Error(Device) names the missing library or symbol, the version and the searched
// locations; a later call tries again.
void load_torch_npu(TorchNpu& npu);

// Returns the locations searched for libtorch_npu.so, in order: only NPU_TRAIN_TORCH_NPU (a file or a folder) if set; otherwise
// TORCH_NPU_INSTALL_PREFIX; next to libtorch, as in the wheel; the folders of the system's loader.
std::vector<std::string> torch_npu_places();

// Returns the number of Ascend NPUs with device nodes in `dev`.
int count_ascend_nodes(const std::filesystem::path& dev = "/dev");

// Returns the number of NPUs that processes may use: those in ASCEND_RT_VISIBLE_DEVICES, or all with device nodes. 0 without
// libtorch_npu.so.
int count_visible_npus();

}  // namespace npu_train::detail
