// The configuration of a checkpoint, for uses other than training.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"

namespace npu_train::detail {

// Returns the checkpoint's configuration without observers, callbacks and loggers of the training, which this program may not have, and
// without the file of initial weights. The model has no adapters: checkpoint_weights() merges them. `overrides` are "model.KEY=VALUE".
RunConfig config_without_training(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts);

}  // namespace npu_train::detail
