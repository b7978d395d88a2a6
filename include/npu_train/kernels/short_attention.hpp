/// Attention over few keys in bf16 on a CPU: the flash kernel of libtorch with a backward pass in fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Whether libtorch would take its flash kernel in bf16, for a backward pass over few keys (at most 256).
bool is_short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// at::scaled_dot_product_attention without mask and dropout, as one autograd node; needs is_short_attention(). Gradients are computed in
/// fp32 and rounded.
at::Tensor short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

}  // namespace npu_train::detail
