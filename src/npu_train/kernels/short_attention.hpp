/// Attention over few keys in bf16 on a CPU: libtorch's flash kernel with a backward pass in fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Returns whether libtorch would use its flash kernel in bf16, with gradients and at most 256 keys.
bool is_short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// Computes at::scaled_dot_product_attention without mask and dropout, as one autograd node; requires is_short_attention(). Gradients are
/// computed in fp32 and rounded.
at::Tensor short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

}  // namespace npu_train::detail
