// The optimizers of a training: one, or several of an AlternatingTask.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// Returns `parts` with a complete list of optimizers. If the list is empty, adds the optimizer that the members precision, optimizer,
// strategy and base_lr describe. Then sets these members to those of the first optimizer in the list. The functions below need the result.
LoopParts with_optimizers(LoopParts parts);
// Returns the parameters that the optimizers update, on the device.
ParameterSet all_updated(const LoopParts& parts);
// Returns the optimizer whose parameters are averaged. Error(Usage) if `average.of` does not name one of several optimizers, or if it names
// one although there is only one.
const OptimizerParts& averaged_optimizer(const LoopParts& parts);
// Returns the name of an optimizer's part of a checkpoint: `part` ("optimizer") or, if the optimizer has a name, "optimizer.generator".
std::string part_of(const char* part, const OptimizerParts& of);

}  // namespace npu_train::detail
