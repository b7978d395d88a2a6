// Copies of a state in host memory, page-locked for a GPU; a thread writes them while training continues.
#pragma once

#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

// Copies `state` to `copy`, whose memory from the last call is reused where it fits.
void copy_to_host(const RunState& state, RunState& copy);
void copy_to_host(const StateSlices& slices, StateSlices& copy);

}  // namespace npu_train::detail
