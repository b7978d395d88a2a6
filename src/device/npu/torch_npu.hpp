// Huawei's torch_npu as a shared object that is loaded at run time: nothing of it is needed to compile, and a machine without it gets a
// sentence instead. Loading it registers libtorch's PrivateUse1 under the name npu (torch_npu/csrc/core/npu/impl/NPUGuardImpl.cpp); the
// device is touched at the first use.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace npu_train::detail {

// What npu_train calls by name, since the device-generic interface of libtorch does not reach it. nullptr: this build of torch_npu has it
// not.
struct TorchNpu {
  std::string path;  // "" when the host program had loaded it already
  void (*init)(c10::DeviceIndex) = nullptr;
  void (*finalize)() = nullptr;
  // hooks.getDefaultGenerator is not overridden before 2.13, so that at::manual_seed seeds no NPU
  const at::Generator& (*default_generator)(c10::DeviceIndex) = nullptr;
  bool (*supports_inf_nan)() = nullptr;
  const char* (*soc_name)() = nullptr;                                  // CANN: aclrtGetSocName
  int (*memory_info)(int kind, size_t* free, size_t* total) = nullptr;  // CANN: aclrtGetMemInfo
};

// Loads the library unless it is loaded already, and looks up its symbols. Error(Device) names the missing library or symbol, the version
// and the places that were searched; a later call tries again.
void load_torch_npu(TorchNpu& npu);

// Where libtorch_npu.so is looked for, in this order: NPU_TRAIN_TORCH_NPU alone if it is set (a file or a folder);
// TORCH_NPU_INSTALL_PREFIX; next to libtorch, as in the wheel; the folders of the system's loader.
std::vector<std::string> torch_npu_places();

// The number of Ascend NPUs of which there are signs under `dev`: their device nodes.
int count_ascend_nodes(const std::filesystem::path& dev = "/dev");

// The number of NPUs that processes may use: those of ASCEND_RT_VISIBLE_DEVICES, or all that have nodes. 0 without libtorch_npu.so.
int count_visible_npus();

}  // namespace npu_train::detail
