/// The report and advice of a run when the memory of a device runs out.
#pragma once

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Adds the report to Error(OutOfMemory) of every run: the place, the memory in use, and the changes of the configuration that would
/// fit, with their predicted peaks. For that it runs the failed window once more under observation; the run itself is over. The task's
/// gradients are dropped; its buffers and the random numbers are unchanged.
void add_memory_report(Parts& parts);

}  // namespace npu_train
