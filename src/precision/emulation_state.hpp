// How Autocast switches the emulation of its thread.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace npu_train::detail {

// Sets what this thread emulates and gives what it emulated before. The first dtype of the process puts the kernels in place.
std::optional<at::ScalarType> exchange_emulated(std::optional<at::ScalarType> dtype);

}  // namespace npu_train::detail
