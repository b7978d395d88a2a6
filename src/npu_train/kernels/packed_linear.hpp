/// Linear layers by oneDNN with prepacked weights: the kernels of packed_linear (nn), whose header gives the reasons.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Returns whether packing makes the layer faster: on an x86 CPU that is not Intel's, with at least 1024 rows.
bool has_packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Computes at::linear with its backward pass, as one autograd node; requires has_packed_product(). `bias` may be undefined. Supports fp32,
/// and low precision by emulation: fp32 arithmetic on rounded inputs, with rounded results.
at::Tensor packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace npu_train::detail
