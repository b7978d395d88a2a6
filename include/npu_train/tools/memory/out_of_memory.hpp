/// What a run reports, and advises, when the memory of a device runs out.
#pragma once

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Adds the report to Error(OutOfMemory) of every run: where it happened, what was held then, and which changes of the configuration would
/// fit, with their predicted peaks. For that it runs the failed window once more under observation; the run itself is over. The task's
/// gradients are dropped; its buffers and the random numbers stay as they are.
void add_memory_report(Parts& parts);

}  // namespace npu_train
