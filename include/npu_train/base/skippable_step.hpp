/// An optimizer that decides on the device whether to step.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// What the step is gated by. Undefined tensors mean: nothing to unscale, nothing found.
struct StepGate {
  at::Tensor inv_scale;  ///< fp32 scalar on the device; gradients are still to be multiplied by it. Undefined: they are ready.
  /// fp32 scalar; not 0 leaves parameters and optimizer state bit-identical. On the parameters' device it decides there; on the host, of
  /// parameters on a device, the host decides. Undefined: always step.
  at::Tensor found_inf;
};

/// An optimizer that takes `inv_scale` and `found_inf` on the device.
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;
  virtual void step(const StepGate& gate) = 0;
  virtual const ParameterSet& parameters() const = 0;
};

}  // namespace npu_train
