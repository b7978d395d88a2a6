/// Unscaling of gradients and the search for inf and NaN, in one pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Multiplies every gradient by `inv_scale` in place and says whether one was not finite before: an fp32 scalar, 0 or 1, on the device of
/// the first gradient. Nothing is read by the host. One fused pass per (device, dtype); gradients that are strided views with gaps are
/// handled too. Parameters without a gradient are passed over; without any gradient the result is 0.
///
/// After a find the gradients hold what the multiplication left: do not use them.
at::Tensor unscale_and_check(const ParameterSet& parameters, double inv_scale);

/// The same for gradients given directly.
at::Tensor unscale_and_check(const std::vector<at::Tensor>& gradients, double inv_scale);

}  // namespace npu_train
