// What kind of failure an error of a trial is.
#pragma once

#include <string>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

struct TrialFailure {
  std::string kind, place, remedy;
};

// `op` ran when it failed ("aten::add"; may be empty), in or behind `layer`, in the trial `trial`.
TrialFailure classify(const Error& error, const std::string& op, const std::string& layer, const std::string& trial);

}  // namespace npu_train::detail
