// The plugin's function that the library calls.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#define NPU_TRAIN_MAKE_HCCL "npu_train_make_hccl"

extern "C" {
// Returns a ProcessGroupHCCL owned by the caller. `timeout`: milliseconds allowed for a collective.
using npu_train_make_hccl_fn = c10d::Backend*(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, long timeout);
}
