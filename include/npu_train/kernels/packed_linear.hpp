/// Linear layers by oneDNN with prepacked weights: the kernels of packed_linear (nn), whose header has the reasons.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Whether the layer is faster packed: on an x86 CPU that is not Intel's, at least 1024 rows.
bool has_packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// at::linear with its backward pass, as one autograd node; needs has_packed_product(). `bias` may be undefined. Works on fp32, and on low
/// precision as an emulated operator does: rounded inputs and results, computed in fp32.
at::Tensor packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace npu_train::detail
