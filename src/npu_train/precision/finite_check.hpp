/// Unscales gradients and searches for inf and NaN, in one pass over memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Multiplies every gradient by `inv_scale` in place. Returns an fp32 scalar on the device of the first gradient: 1 if a gradient was not
/// finite before, otherwise 0. The host does not read it. Runs one fused pass per (device, dtype). Accepts strided views with gaps, and
/// checks the values of sparse (COO) gradients. Ignores parameters without a gradient; without any gradient the result is 0. Error(Usage)
/// for a gradient that is complex, expanded (several elements share memory) or has another layout.
///
/// On devices whose overflow saturates (Ascend 910A, 310P), no value shows an overflow. There the host reads the device's sticky flag,
/// which covers forward and backward since clear_overflow_flags(). `computed_on` lists devices whose gradients were copied elsewhere, for
/// example to the host; their flags are read, too.
///
/// If the result is 1, the gradients have been multiplied, but are not usable.
at::Tensor unscale_and_check(const ParameterSet& parameters, double inv_scale, const std::vector<c10::Device>& computed_on = {});

/// Overload for a list of gradients.
at::Tensor unscale_and_check(const std::vector<at::Tensor>& gradients, double inv_scale, const std::vector<c10::Device>& computed_on = {});

/// Clears the overflow flags of the devices of `tensors` and of `computed_on`. Call it before the forward of a step. Has no effect on
/// devices whose overflow gives inf.
void clear_overflow_flags(const std::vector<at::Tensor>& tensors, const std::vector<c10::Device>& computed_on = {});

}  // namespace npu_train
