/// Initial values of weights. Each function fills the tensor in place, outside of autograd, from this thread's host generator
/// or the device's generator. Equal seeds give equal weights for any number of threads. Distributions and names are
/// those of torch.nn.init.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace npu_train::init {

/// Number of inputs and outputs of one unit. For a weight [out, in, k1, k2 ...] they are in * k1 * k2 ... and out * k1 * k2 ...
/// Error(Usage) for a weight with fewer than two dimensions.
struct Fans {
  int64_t in;
  int64_t out;
};
Fans fans(const at::Tensor& weight);

void zeros_(const at::Tensor& tensor);
void ones_(const at::Tensor& tensor);

/// N(0, std^2).
void normal_(const at::Tensor& tensor, double std);

/// Truncated normal distribution on [lo, hi]; the bounds are absolute values, not multiples of std. Uses the inverse distribution function,
/// so that no draw is rejected.
void trunc_normal_(const at::Tensor& tensor, double std, double lo = -2.0, double hi = 2.0);

/// N(0, 2 / fan_out): keeps the variance of gradients through ReLU layers (He et al., "Delving Deep into Rectifiers", ICCV 2015).
void kaiming_normal_fan_out_(const at::Tensor& weight);

/// U(-b, b), b = sqrt(1 / fan_in), as torch.nn.Linear and Conv2d are initialised.
void kaiming_uniform_fan_in_(const at::Tensor& weight);

/// U(-b, b), b = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010).
void xavier_uniform_(const at::Tensor& weight);

/// U(-bound, bound).
void uniform_(const at::Tensor& tensor, double bound);

}  // namespace npu_train::init
