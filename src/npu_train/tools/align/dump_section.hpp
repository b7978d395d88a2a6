/// The section `dump` of a configuration: a Dumper that observes the run.
#pragma once

#include "npu_train/engine/parts.hpp"
#include "npu_train/tools/align/dumper.hpp"

namespace npu_train {

/// Adds the section `dump`. A run with this section writes a dump into `dump.dir`, starting with the first step that a call of fit(),
/// train_epoch() or train_step() computes.
void add_dump(Parts& parts);

}  // namespace npu_train
