/// The interface of optimizers that decide on the device whether to step.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Conditions of a step, as tensors that the device evaluates. Undefined tensors mean: no unscaling, no overflow.
struct StepDecision {
  at::Tensor inv_scale;  ///< fp32 scalar on the device: factor by which the gradients are still to be multiplied. Undefined: 1.
  /// fp32 scalar; if it is not 0, parameters and optimizer state stay bit-identical. A tensor on the parameters' device is evaluated by
  /// that device, a tensor on the host by the host. Undefined: always step.
  at::Tensor found_inf;
};

/// An optimizer that accepts `inv_scale` and `found_inf` on the device.
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;
  virtual void step(const StepDecision& decision) = 0;
  virtual const ParameterSet& parameters() const = 0;
};

}  // namespace npu_train
