// Classifies the error of a trial.
#pragma once

#include <string>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

struct TrialFailure {
  std::string kind, place, remedy;
};

// Classifies an error of the trial `trial`. `op`: the operator that failed ("aten::add"), in or after `layer`; both may be empty.
TrialFailure classify(const Error& error, const std::string& op, const std::string& layer, const std::string& trial);

}  // namespace npu_train::detail
