// libtorch's convolutions, with a replacement for a faulty kernel.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

// Computes at::conv2d with the same stride and padding in both directions; `bias` may be undefined. Casts inputs as autocast would.
at::Tensor library_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride, int64_t padding);

}  // namespace npu_train::detail
