/// The facts of a process that has loaded libtorch.
#pragma once

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// Returns the facts of this process.
ProcessFacts this_process();

}  // namespace npu_train
