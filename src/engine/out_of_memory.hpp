// What to tell, and to do, when the memory of a device ran out in a step.
#pragma once

#include "npu_train/core/error.hpp"
#include "run_build.hpp"

namespace npu_train::detail {

// Runs the window once more under observation, and steps of few samples for the advice; the run itself is over. The task's gradients are
// dropped, its buffers and the random numbers stay as they are.
Error explain_out_of_memory(Run& run, const RunConfig& config, const Parts& parts, FailedWindow failed, const Error& cause);

}  // namespace npu_train::detail
