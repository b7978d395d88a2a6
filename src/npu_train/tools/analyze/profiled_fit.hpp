/// Implements `trainer.profiler` of a configuration: a Profiler that observes each fit().
#pragma once

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Adds trainer.profiler. At its end, fit() logs the profile and writes it to the folder `profile` in the run's folder: profile.json,
/// profile.html and, for `chrome`, trace.json. A run without a folder only logs it.
void add_profiler(Parts& parts);

}  // namespace npu_train
