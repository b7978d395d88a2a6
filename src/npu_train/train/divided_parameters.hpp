/// Which parameters each optimizer of an AlternatingTask updates, and what such optimizers support.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

/// Returns, for each optimizer NAME of the task, the name and the parameters "NAME.*" of `all`. Error(Usage) for a name that contains other
/// characters than letters, digits and '_', for a name that occurs twice, for an optimizer without parameters, for a trained parameter
/// without an optimizer, and for an interval (AlternatingTask::every()) that is not valid.
std::vector<std::pair<std::string, ParameterSet>> divided_parameters(const AlternatingTask& task, const ParameterSet& all);
/// Throws Error(Usage) if the strategy divides states among the ranks, which the optimizers of one task do not support.
void check_complete_states(Strategy& strategy);
/// Returns the index in `names` of the optimizer whose parameters are averaged. `names` is {""} for a task with one optimizer. Error(Usage)
/// if `of` (average.of) is not among them.
size_t place_of_averaged(const std::string& of, const std::vector<std::string>& names);

}  // namespace npu_train::detail
