// Switches the emulation of a thread, for Autocast.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace npu_train::detail {

// Sets the dtype that this thread emulates and returns the previous one. The first dtype of the process registers the kernels.
std::optional<at::ScalarType> exchange_emulated(std::optional<at::ScalarType> dtype);

}  // namespace npu_train::detail
