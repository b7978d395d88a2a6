// The wheel of torch_npu, imported by an interpreter in this process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/npu/python_environment.hpp"
#include "device/npu/torch_npu.hpp"

namespace npu_train::detail {

// Returns the environment that has torch_npu: the one that NPU_TRAIN_PYTHON names (an interpreter, or the folder of its environment) if
// set, otherwise the first of usual_pythons(). Returns nullopt if none of these has torch_npu; `tried` then has a reason for each.
// Error(Device) if the environment that NPU_TRAIN_PYTHON names has no torch_npu.
std::optional<PythonEnvironment> environment_with_torch_npu(std::vector<std::string>& tried);

// Starts the interpreter of `environment`, and imports its torch_npu. Error(Device) if torch_npu does not fit libtorch, or cannot be
// imported.
void import_wheel(const PythonEnvironment& environment, TorchNpu& out);

// Imports torch_npu in the interpreter of the host program. Error(Device) if it cannot be imported.
void import_into_host();

// True if the last import failed. A failed import may have registered the device nevertheless.
bool import_has_failed();

// Sets the functions of `out` that torch_npu provides in Python, if the process has imported it.
void use_python_functions(TorchNpu& out);

}  // namespace npu_train::detail
