// The end of a step: turns gradients that are sums over ranks into an update of the parameters, or into none.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train::detail {

// Call the functions in this order.
class Update {
 public:
  // The arguments are borrowed. `clip_value` and `clip_by_norm`: see StepOptions.
  Update(Precision& precision, Optimizer& optimizer, Strategy& strategy, double clip_value, bool clip_by_norm)
      : precision_(precision), optimizer_(optimizer), strategy_(strategy), clip_value_(clip_value), clip_by_norm_(clip_by_norm) {}

  // Multiplies the gradients by `factor`, unscales them, and checks that they are finite.
  void unscale(double factor) { decision_ = precision_.unscale_and_check(factor); }
  // Makes the only exchange of a step: the ranks agree on found_inf, the squares of the norm and `all.sums`. Clips the gradients and
  // returns their norm; undefined if nothing is clipped by norm.
  at::Tensor agree_and_clip(StepAgreement& all);
  // Steps the optimizer, which changes no bit after an overflow on any rank.
  void step();
  const StepDecision& decision() const { return decision_; }

 private:
  Precision& precision_;
  Optimizer& optimizer_;
  Strategy& strategy_;
  double clip_value_;
  bool clip_by_norm_;
  StepDecision decision_;
};

}  // namespace npu_train::detail
