/// Names of metrics that the configuration watches.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/options.hpp"

namespace npu_train::detail {

/// Error(Usage) for a checkpoint.monitor or, where it is on, an early_stopping.monitor of which a task with these metrics has no value. It
/// would rank nothing and stop nothing, in silence.
void check_monitors(std::vector<std::string> metrics, const CheckpointOptions& checkpoint, const EarlyStoppingOptions& early);

}  // namespace npu_train::detail
