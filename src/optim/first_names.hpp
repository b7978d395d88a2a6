// Loads saved state in which tied parameters have other names.
#pragma once

#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"

namespace npu_train::detail {

/// Renames the entries of `saved` ("<kind>/<parameter>") from aliases of tied parameters to the names in `own`. Older versions stored and
/// updated a tied tensor once per name. If such entries differ, a warning lists those that are kept.
State under_first_names(const State& saved, const State& own, const ParameterSet& parameters, const std::string& where);

}  // namespace npu_train::detail
