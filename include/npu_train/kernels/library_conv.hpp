/// The convolutions of libtorch, without the one of its kernels that is wrong.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace npu_train::detail {

/// at::conv2d of one stride and one padding; `bias` may be undefined.
at::Tensor plain_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride, int64_t padding);

/// Whether oneDNN's weight gradient reads memory that nothing was written to, which may give NaN: bf16 on maps that are narrower than the
/// stride, with padding. Found by trying 60,000 shapes; fp16 and fp32 are right in all.
bool has_wrong_weight_gradient(at::ScalarType dtype, const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);

/// The backward of plain_conv2d: gradients of input, weight and bias, those that are `wanted`. Computed in fp32 if
/// has_wrong_weight_gradient().
std::array<at::Tensor, 3> library_conv2d_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                                                  int64_t padding, std::array<bool, 3> wanted);

/// plain_conv2d with library_conv2d_backward, as one autograd node.
at::Tensor conv2d_with_right_gradient(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t stride,
                                      int64_t padding);

}  // namespace npu_train::detail
