/// Unscaling of gradients and the search for inf and NaN, in one pass over memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Multiplies every gradient by `inv_scale` in place and says whether one was not finite before: an fp32 scalar, 0 or 1, on the device of
/// the first gradient. Nothing is read by the host. One fused pass per (device, dtype); gradients that are strided views with gaps are
/// handled too, and of sparse (COO) ones their values. Parameters without a gradient are passed over; without any gradient the result is 0.
/// Error(Usage) for a gradient that is complex, expanded (several elements share memory) or of another layout.
///
/// On a device whose overflow saturates (Ascend 910A, 310P) no value shows it: there its sticky flag is read, by the host, and what
/// overflowed since clear_overflow_flags counts, in forward and backward. `computed_on`: devices whose gradients were copied elsewhere, to
/// the host for example; their flags are read too.
///
/// After a find the gradients hold what the multiplication left: do not use them.
at::Tensor unscale_and_check(const ParameterSet& parameters, double inv_scale, const std::vector<c10::Device>& computed_on = {});

/// The same for gradients given directly.
at::Tensor unscale_and_check(const std::vector<at::Tensor>& gradients, double inv_scale, const std::vector<c10::Device>& computed_on = {});

/// To be called before the forward of a step, with any tensors on its devices, and devices on which none of these is. Does nothing where
/// overflow gives inf.
void clear_overflow_flags(const std::vector<at::Tensor>& tensors, const std::vector<c10::Device>& computed_on = {});

}  // namespace npu_train
