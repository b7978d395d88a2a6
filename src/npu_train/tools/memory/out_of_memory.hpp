/// The report and advice of a run when the memory of a device runs out.
#pragma once

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Adds the report to Error(OutOfMemory) of every run: the place, the memory in use, and the changes of the configuration that would fit,
/// with their predicted peaks. To find these, the failed window runs once more under observation; the run itself has ended. Drops the
/// task's gradients; restores its buffers and the random numbers.
void add_memory_report(Parts& parts);

}  // namespace npu_train
