// Ranks that do not exist: for the memory of one of many, on a machine that has no room for them.
#pragma once

#include <memory>

#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// Rank 0 of `size` ranks, whose tensors all others have too. Gradients travel between the memories of devices, unless dist.backend is
// gloo: then through the host's.
std::shared_ptr<ProcessGroup> mirrored_group(int size, const DistOptions& options);

}  // namespace npu_train::detail
