// Whether two runs update their weights alike, for dumps that do not have the optimizer's step on both sides, as those of msprobe: by the
// weights before and after it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

// Goes along the steps of one rank.
class UpdateCheck {
 public:
  // After the values of `step` were judged: finds an update before it that differs although its gradients agree, and fails the weights that
  // show it. Gives the error that an update without a fault left in the weights; nothing where the weights of the step before are unknown,
  // or its optimizer was compared.
  std::optional<double> judge(StepComparison& step);

 private:
  using Weights = std::map<std::string, std::pair<DumpItem, DumpItem>>;  // by the name in A
  int64_t before_ = -1;                                                  // the step of `weights_`; -1: none
  Weights weights_;
  double gradient_error_ = 0;  // the usual one
};

}  // namespace npu_train::detail
