/// 2-D convolutions as matrix products: the kernels of lowered_conv2d (nn), whose header has the measurements.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Whether the processor multiplies bf16 (AVX512_BF16).
bool multiplies_bf16();

/// Whether a pass of this convolution is lowered. `low`: in bf16, by units of the processor.
bool has_lowered_conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding, bool low);

/// The convolution with its backward pass, as one autograd node; needs has_lowered_conv(). Passes that are not lowered are libtorch's.
/// Works on fp32, with `low` on bf16, and on low precision as an emulated operator does: rounded inputs and results, computed in fp32.
at::Tensor lowered_conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding, bool low);

}  // namespace npu_train::detail
