// Reads weights and configuration of a checkpoint for purposes other than training.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/weight_set.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

// Weights as a checkpoint stores them.

struct SavedWeights {
  NamedTensors tensors{};     // with adapters, if any; a tied tensor under each of its names
  bool averages = false;      // the returned tensors are averages
  bool has_averages = false;  // the checkpoint has averages
};

// Reads the weights. Error(Checkpoint) if `set` is Ema but there are no averages.
SavedWeights saved_weights(const std::string& checkpoint, WeightSet set);

// Returns the checkpoint's configuration without observers, callbacks and loggers of the training, which this program may not have, and
// without the file of initial weights. The model has no adapters: checkpoint_weights() merges them. `overrides` are "model.KEY=VALUE".
RunConfig config_without_training(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts);

}  // namespace npu_train::detail
