// Weights as a checkpoint stores them.
#pragma once

#include <string>

#include "npu_train/engine/weight_set.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

struct SavedWeights {
  NamedTensors tensors{};     // with adapters, if any; a tied tensor under each of its names
  bool averages = false;      // the returned tensors are averages
  bool has_averages = false;  // the checkpoint has averages
};

// Reads the weights. Error(Checkpoint) if `set` is Ema but there are no averages.
SavedWeights saved_weights(const std::string& checkpoint, WeightSet set);

}  // namespace npu_train::detail
