/// `trainer.profiler` of a configuration: a Profiler that watches each fit().
#pragma once

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Gives trainer.profiler its meaning. At its end a fit() logs the profile and writes it into `profile` of the run's folder: profile.json,
/// profile.html and, of `chrome`, trace.json. A run without a folder only logs it.
void add_profiler(Parts& parts);

}  // namespace npu_train
