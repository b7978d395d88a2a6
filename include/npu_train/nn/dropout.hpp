/// Dropout that follows `rng:` the device's generator, or portable numbers where a PortableRandom lives.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Each value is 0 with probability `p`, else divided by 1 - p (Srivastava et al., JMLR 2014). x itself for p = 0 and outside training.
/// Error(Usage) for p outside [0, 1].
at::Tensor dropout(const at::Tensor& x, double p, bool training);

/// The same for entire samples: one draw for each index of the first dimension, [N, ...] (stochastic depth; Huang et al., ECCV 2016).
at::Tensor drop_path(const at::Tensor& x, double p, bool training);

}  // namespace npu_train
