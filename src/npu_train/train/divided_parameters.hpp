/// Which parameters an optimizer of an AlternatingTask updates.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

/// Returns, for each optimizer of the task, its name and those of `all` that begin with it. Error(Usage) for names that are not letters,
/// digits and '_' or occur twice, for an optimizer without parameters, for a trained parameter without an optimizer, and for intervals that
/// are not possible.
std::vector<std::pair<std::string, ParameterSet>> divided_parameters(const AlternatingTask& task, const ParameterSet& all);

}  // namespace npu_train::detail
