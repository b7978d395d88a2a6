// Switches a thread's emulation on and off, for Autocast.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace npu_train::detail {

// Sets the dtype that this thread emulates and returns the previous one. The first dtype that any thread sets registers the kernels.
std::optional<at::ScalarType> exchange_emulated(std::optional<at::ScalarType> dtype);

}  // namespace npu_train::detail
