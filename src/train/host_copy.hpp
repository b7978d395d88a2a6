// Copies in host memory, page-locked for a GPU, of the state that is written while training continues.
#pragma once

#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

// Reuses the memory that `copy` has from the last call, if it fits.
void copy_to_host(const RunState& state, RunState& copy);
void copy_to_host(const StateSlices& slices, StateSlices& copy);

}  // namespace npu_train::detail
