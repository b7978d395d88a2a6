// Models and tasks that bring their parameters where these are in shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

// Each block becomes a unit of `strategy`, with the parameters of its module; those that several blocks use, and those outside of blocks,
// belong to none. The model itself if parameters are not in shards, or it has no blocks.
Model in_units(Model model, const std::shared_ptr<Strategy>& strategy);

// The same for a task given in code, with Task::units(). A parameter of several units, or with several names, belongs to none.
void connect_units(Task& task, const std::shared_ptr<Strategy>& strategy);

// The parameters with masters for `names`, whose tensors the model then has in `dtype`: for ranks that bring parameters, since less
// travels, and autograd keeps no copies in `dtype`.
ParameterSet brought_in(c10::ScalarType dtype, const std::vector<std::string>& names, const ParameterSet& trained);

}  // namespace npu_train
