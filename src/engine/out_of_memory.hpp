// What to tell, and to do, when the memory of a device ran out.
#pragma once

#include <optional>

#include "npu_train/core/error.hpp"
#include "run_build.hpp"

namespace npu_train::detail {

// Runs what failed once more under observation, and steps of few samples for the advice; the run itself is over. Without `failed` (in a
// callback, a checkpoint) it says what lies on the device. The task's gradients are dropped, its buffers and the random numbers stay as
// they are.
Error explain_out_of_memory(Run& run, const RunConfig& config, const Parts& parts, std::optional<FailedWindow> failed, const Error& cause);

// Of a run that is half built.
Error explain_out_of_memory_in_setup(const Run& run, const RunConfig& config, const Error& cause);

}  // namespace npu_train::detail
