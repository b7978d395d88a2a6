// Checks whether two runs update their weights alike, by the weights before and after an update. This is for pairs of dumps that do not
// both contain the optimizer's step, such as msprobe's.
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
  // Call it after the values of `step` were judged. Finds an update before the step that differs although its gradients agree, and fails
  // the weights that show it. Returns the error of the weights after a correct update; nullopt if the weights of the previous step are
  // unknown, or if that step's optimizer was compared.
  std::optional<double> judge(StepComparison& step);

 private:
  using Weights = std::map<std::string, std::pair<DumpItem, DumpItem>>;  // by the name in A
  int64_t before_ = -1;                                                  // step of `weights_`; -1: none
  Weights weights_;
  double gradient_error_ = 0;  // median over the gradients of the previous step
};

}  // namespace npu_train::detail
