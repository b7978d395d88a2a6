/// The random number generators of the process, all at once.
#pragma once

#include <cstdint>

#include "npu_train/base/state.hpp"

namespace npu_train {

/// Seeds libtorch's default generators: the CPU's and those of every available device, each explicitly. (at::manual_seed leaves out CUDA
/// when a PrivateUse1 backend is loaded, and torch_npu before 2.13 altogether.)
void seed_everything(uint64_t seed);

/// State of all these generators, keyed by device ("cpu", "cuda:0").
State rng_state();

/// Sets what `state` holds for devices that are here; entries of other devices are passed over, so that a checkpoint from a GPU can go on
/// on a CPU. Error(Checkpoint) without an entry for the CPU or for a damaged one; nothing is changed then.
void set_rng_state(const State& state);

}  // namespace npu_train
