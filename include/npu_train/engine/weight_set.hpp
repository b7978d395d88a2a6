/// Selects one of the two sets of weights that a file or checkpoint may have.
#pragma once

#include <string>

namespace npu_train {

enum class WeightSet {
  Auto,   ///< the averages if there are any: a run with `average.enabled` validates these, and timm loads them
  Plain,  ///< the weights that the optimizer updates
  Ema,    ///< the averages; Error(Checkpoint) if there are none
};

/// Parses the values of `model.weights_key` (auto, ema, model) and of the option --weights (plain, ema). Error(Usage) for any other.
WeightSet weight_set_of(const std::string& name);

}  // namespace npu_train
