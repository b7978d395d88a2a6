// What is written while the training continues: a copy of it in host memory, page-locked for a GPU.
#pragma once

#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

// In the memory that `copy` has from the last time, wherever that fits.
void copy_to_host(const RunState& state, RunState& copy);
void copy_to_host(const StateSlices& slices, StateSlices& copy);

}  // namespace npu_train::detail
