/// Linear layers by oneDNN with prepacked weights: the kernels of packed_linear (nn), whose header gives the reasons.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Returns whether packing makes the layer faster. It does on x86 CPUs of vendors other than Intel if there are at least 1024 rows.
bool has_packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Computes at::linear with its backward pass, as one autograd node; requires has_packed_product(). `bias` may be undefined. Supports fp32,
/// and low precision by emulation: fp32 arithmetic on rounded inputs, with rounded results.
at::Tensor packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace npu_train::detail
