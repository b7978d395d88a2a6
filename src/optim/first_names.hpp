// Saved state of tied tensors.
#pragma once

#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"

namespace npu_train::detail {

/// `saved`, keyed "<kind>/<parameter>", with each tied tensor under the name that it has in `own`. Older versions knew such a tensor under
/// each of its names, and updated it once for each: where the entries differ, a warning names those that are kept.
State under_first_names(const State& saved, const State& own, const ParameterSet& parameters, const std::string& where);

}  // namespace npu_train::detail
