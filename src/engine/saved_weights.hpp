// Weights as saved in a checkpoint.
#pragma once

#include <string>

#include "npu_train/engine/weight_set.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

struct SavedWeights {
  NamedTensors tensors{};     // including adapters, if any; a tied tensor under each of its names
  bool averages = false;      // the tensors are averages
  bool has_averages = false;  // the checkpoint has averages
};

// Reads the weights. Error(Checkpoint) if `set` is Ema and there are no averages.
SavedWeights saved_weights(const std::string& checkpoint, WeightSet set);

}  // namespace npu_train::detail
