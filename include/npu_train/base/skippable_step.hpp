/// An optimizer that decides on the device whether to step.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// The conditions of the step. Undefined tensors mean: no unscaling, no overflow.
struct StepGate {
  at::Tensor inv_scale;  ///< fp32 scalar on the device; factor by which gradients must still be multiplied. Undefined: they are ready.
  /// fp32 scalar; not 0 leaves parameters and optimizer state bit-identical. If it is on the parameters' device, the device decides; if it
  /// is on the host and the parameters on a device, the host decides. Undefined: always step.
  at::Tensor found_inf;
};

/// An optimizer that accepts `inv_scale` and `found_inf` on the device.
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;
  virtual void step(const StepGate& gate) = 0;
  virtual const ParameterSet& parameters() const = 0;
};

}  // namespace npu_train
