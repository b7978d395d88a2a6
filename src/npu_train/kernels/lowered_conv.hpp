/// 2-D convolutions as matrix products: the kernels of lowered_conv2d (nn), whose header describes them.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Returns whether the processor multiplies bf16 (AVX512_BF16).
bool multiplies_bf16();

/// Returns whether any pass of this convolution is lowered. `low`: computed natively in bf16.
bool has_lowered_conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding, bool low);

/// Computes the convolution with its backward pass, as one autograd node; requires has_lowered_conv(). Passes that are not lowered use
/// libtorch. With `low`, computes natively in bf16. Without it, computes in fp32 or emulates low precision: fp32 arithmetic on rounded
/// inputs, with rounded results.
at::Tensor lowered_conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding, bool low);

}  // namespace npu_train::detail
