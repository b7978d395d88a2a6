// Names that earlier versions gave to sections and keys of a configuration.
#pragma once

#include "npu_train/core/config_table.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train::detail {

// Renames them to their current names. A value that is given under both names is added to `problems`.
void rename_earlier(ConfigNode& node, ConfigProblems& problems);

}  // namespace npu_train::detail
