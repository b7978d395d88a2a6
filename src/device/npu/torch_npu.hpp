// Huawei's torch_npu, loaded at run time: compiling does not need it, and a machine without it gets an error message. It is either the
// wheel of a Python environment, which an interpreter in this process imports, or a library built without Python (BUILD_LIBTORCH). Both
// register libtorch's PrivateUse1 under the name npu; neither touches the device before its first use.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace npu_train::detail {

// Functions of torch_npu that libtorch's device-generic interface does not cover; docs/npu.md lists where each version has them. A function
// that this torch_npu lacks is empty or nullptr.
struct TorchNpu {
  std::string path;  // path of the library; "" if the host program had already loaded it
  std::function<void()> init;
  std::function<void()> finalize;  // empty if the host program loaded it
  // Before 2.13, torch_npu does not override hooks.getDefaultGenerator, so at::manual_seed does not seed NPUs.
  const at::Generator& (*default_generator)(c10::DeviceIndex) = nullptr;
  std::function<bool()> supports_inf_nan;
  const char* (*soc_name)() = nullptr;                                  // aclrtGetSocName of CANN
  int (*memory_info)(int kind, size_t* free, size_t* total) = nullptr;  // aclrtGetMemInfo of CANN
};

// Loads torch_npu if necessary, and looks up its functions. Error(Device) names the missing library or function, the version and the
// searched locations; a later call tries again.
void load_torch_npu(TorchNpu& npu);

// Returns the places in which to search for a libtorch_npu.so without Python, in order: only NPU_TRAIN_TORCH_NPU (a file or a folder) if
// set; otherwise TORCH_NPU_INSTALL_PREFIX; the package libtorch_npu next to torch; the folders of the system's loader.
std::vector<std::string> torch_npu_places();

// Returns the folder of the libtorch_cpu.so of this process.
std::filesystem::path libtorch_folder();

// Returns the number of Ascend NPUs with device nodes in `dev`.
int count_ascend_nodes(const std::filesystem::path& dev = "/dev");

// Returns the number of NPUs that processes may use: those listed in ASCEND_RT_VISIBLE_DEVICES, or all that have device nodes. 0 without
// torch_npu.
int count_visible_npus();

}  // namespace npu_train::detail
