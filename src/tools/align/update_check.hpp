// Checks by the weights before and after an update whether two runs update their weights alike. It is used if at least one of two dumps
// does not contain the optimizer's step, as in dumps of msprobe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

// Follows the steps of one rank.
class UpdateCheck {
 public:
  // Call it after the values of `step` were judged. If the update before `step` differs although its gradients agree, sets `step.update`
  // and fails the weights that show the difference. Returns the largest error of the weights; nullopt if the weights of the previous step
  // are unknown, if the optimizer of that step was compared, or if fewer than three weights have changed by more than rounding.
  std::optional<double> judge(StepComparison& step);

 private:
  using Weights = std::map<std::string, std::pair<DumpItem, DumpItem>>;  // by the name in A
  int64_t before_ = -1;                                                  // step of `weights_`; -1: none
  Weights weights_;
  double gradient_error_ = 0;  // median over the gradients of the previous step
};

}  // namespace npu_train::detail
