/// An optimizer that decides on the device whether to step.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// What the step is gated by. Undefined tensors mean: nothing to unscale, nothing found.
struct StepGate {
  at::Tensor inv_scale;  ///< fp32 scalar on the device; gradients are still to be multiplied by it. Undefined: they are ready.
  at::Tensor found_inf;  ///< fp32 scalar on the device; not 0 leaves parameters and optimizer state bit-identical. Undefined: always step.
};

/// An optimizer that takes `inv_scale` and `found_inf` on the device. Others get one host read of found_inf.
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;
  virtual void step(const StepGate& gate) = 0;
  virtual const ParameterSet& parameters() const = 0;
};

}  // namespace npu_train
