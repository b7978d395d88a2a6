/// Dropout that follows `rng:`: it uses the device's generator, or portable numbers inside a PortableRandom.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Sets each value to 0 with probability `p` and divides the others by 1 - p (Srivastava et al., JMLR 2014). Returns x itself if p is 0 or
/// `training` is false. Error(Usage) for p outside [0, 1].
at::Tensor dropout(const at::Tensor& x, double p, bool training);

/// Drops entire samples: one draw per index of the first dimension of x [N, ...] (stochastic depth; Huang et al., ECCV 2016).
at::Tensor drop_path(const at::Tensor& x, double p, bool training);

}  // namespace npu_train
