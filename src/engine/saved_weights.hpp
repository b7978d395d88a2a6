// The weights of a checkpoint as they were saved.
#pragma once

#include <string>

#include "npu_train/engine/weight_set.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

struct SavedWeights {
  NamedTensors tensors{};     // with adapters, if there are any; a tied tensor under each of its names
  bool averages = false;      // they are the averages
  bool has_averages = false;  // the checkpoint has them
};

// Error(Checkpoint) if it has no averages and `set` is Ema.
SavedWeights saved_weights(const std::string& checkpoint, WeightSet set);

}  // namespace npu_train::detail
