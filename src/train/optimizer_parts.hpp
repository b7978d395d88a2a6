// The optimizers of a training: one, or several of an AlternatingTask.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// Returns the parts with the list of all optimizers, one at least, and with the first of them as the own members of LoopParts. The
// functions below need it.
LoopParts with_optimizers(LoopParts parts);
// Returns the parameters that the optimizers update, on the device.
ParameterSet all_updated(const LoopParts& parts);
// Returns the optimizer whose parameters are averaged. Error(Usage) if `average.of` does not name one of several optimizers, or names one
// where there is one only.
const OptimizerParts& averaged_optimizer(const LoopParts& parts);
// Returns the name of a part of a checkpoint that each optimizer has: "optimizer", or "optimizer.generator".
std::string part_of(const char* part, const OptimizerParts& of);

}  // namespace npu_train::detail
