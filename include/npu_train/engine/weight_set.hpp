/// Which weights are meant where a file or a checkpoint has two sets of them.
#pragma once

#include <string>

namespace npu_train {

enum class WeightSet {
  Auto,   ///< the averages if there are any: those that a run with `ema.enabled` validates, and that timm loads
  Plain,  ///< those that the optimizer updates
  Ema,    ///< the averages (EMA); Error(Checkpoint) if there are none
};

/// By the names of `model.weights_key` (auto, ema, model) and of the option --weights (plain, ema). Error(Usage) for any other.
WeightSet weight_set_of(const std::string& name);

}  // namespace npu_train
