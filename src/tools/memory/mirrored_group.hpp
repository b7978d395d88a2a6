// Simulated ranks, to predict the memory of one rank on a machine that has no memory for all of them.
#pragma once

#include <memory>

#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// Returns rank 0 of `size` ranks, all with the same tensors. Gradients are exchanged between device memories, or through host memory if
// dist.backend is gloo.
std::shared_ptr<ProcessGroup> mirrored_group(int size, const DistOptions& options);

}  // namespace npu_train::detail
