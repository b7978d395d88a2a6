/// Section `dump` of a configuration: a Dumper that observes the run.
#pragma once

#include "npu_train/engine/parts.hpp"
#include "npu_train/tools/align/dump_options.hpp"

namespace npu_train {

/// Adds the section `dump`. A run that has it writes its dump into `dump.dir`, from the first step of a call on.
void add_dump(Parts& parts);

}  // namespace npu_train
