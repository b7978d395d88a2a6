// npu_tool doctor --dist: tests the collectives between ranks, which this command or a launcher has started.
#pragma once

#include "tools/commands/check/doctor_options.hpp"

namespace npu_train::cli {

/// Returns the exit code. Call it from a single-threaded process, before a device is initialised.
int doctor_dist(const DistArguments& args);

}  // namespace npu_train::cli
