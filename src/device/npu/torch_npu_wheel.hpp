// The wheel of torch_npu, which an interpreter in this process imports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/npu/python_environment.hpp"
#include "device/npu/torch_npu.hpp"

namespace npu_train::detail {

// Returns the environment with torch_npu: that of NPU_TRAIN_PYTHON (an interpreter, or the folder of its environment) if set, otherwise the
// first of usual_pythons(). nullopt if none of these has torch_npu; `tried` then has a reason for each. Error(Device) if the named one has
// none.
std::optional<PythonEnvironment> environment_with_torch_npu(std::vector<std::string>& tried);

// Starts the interpreter of `environment`, and imports its torch_npu. Error(Device) if that does not fit libtorch, or cannot be imported.
void import_wheel(const PythonEnvironment& environment, TorchNpu& out);

// Imports torch_npu in the interpreter of the host program. Error(Device) if it cannot be imported.
void import_into_host();

// True if the last import failed. It may nevertheless have registered the device.
bool import_has_failed();

// Sets the functions that torch_npu provides in Python, if the process has imported it.
void use_python_functions(TorchNpu& out);

}  // namespace npu_train::detail
