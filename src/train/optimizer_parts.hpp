// The optimizers of a training: one, or several of an AlternatingTask.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// Returns the optimizers of a loop, in the order of their steps.
std::vector<OptimizerParts> all_optimizers(const LoopParts& parts);
// Returns the parameters that they update, on the device.
ParameterSet all_updated(const LoopParts& parts);
// Returns the optimizer whose parameters are averaged. Error(Usage) if `average.of` does not name one of several optimizers, or names one
// where there is one only.
OptimizerParts averaged_optimizer(const LoopParts& parts);
// Returns the name of a part of a checkpoint that each optimizer has: "optimizer", or "optimizer.generator".
std::string part_of(const char* part, const OptimizerParts& of);

}  // namespace npu_train::detail
