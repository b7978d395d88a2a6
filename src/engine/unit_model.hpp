// Models and tasks whose sharded parameters are gathered unit by unit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

// Makes each block a unit of `strategy`, with the parameters of its module. Parameters that several blocks share, and those outside of
// blocks, are in no unit. Returns the model unchanged if parameters are not sharded or it has no blocks.
Model in_units(Model model, const std::shared_ptr<Strategy>& strategy);

// Makes units for a task given in code, from Task::units(). A parameter that is in several units, or has several names, belongs to no unit.
void connect_units(Task& task, const std::shared_ptr<Strategy>& strategy);

// Returns `trained`, in which the parameters of these names have masters; in the model, these parameters then have `dtype`. Gathering them
// then takes fewer bytes, and autograd keeps no copies in `dtype`.
ParameterSet gathered_in(c10::ScalarType dtype, const std::vector<std::string>& names, const ParameterSet& trained);

}  // namespace npu_train
