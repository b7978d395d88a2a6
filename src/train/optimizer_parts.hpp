// The optimizers of a training: one, or several of an AlternatingTask.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// Returns `parts` with a list of at least one optimizer, and with the members of LoopParts for a single optimizer set to the first one in
// the list. The functions below need such parts.
LoopParts with_optimizers(LoopParts parts);
// Returns the parameters that the optimizers update, on the device.
ParameterSet all_updated(const LoopParts& parts);
// Returns the optimizer whose parameters are averaged. Error(Usage) if `average.of` does not name one of several optimizers, or if it names
// one although there is only one.
const OptimizerParts& averaged_optimizer(const LoopParts& parts);
// Returns the name of a part of a checkpoint that each optimizer has: "optimizer", or "optimizer.generator".
std::string part_of(const char* part, const OptimizerParts& of);

}  // namespace npu_train::detail
