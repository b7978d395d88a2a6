// The convolutions of libtorch, without the one of its kernels that is wrong.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

// at::conv2d of one stride and one padding; `bias` may be undefined. Inputs are in the dtype that autocast would give them.
at::Tensor library_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride, int64_t padding);

}  // namespace npu_train::detail
