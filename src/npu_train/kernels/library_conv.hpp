/// libtorch's convolutions, with a replacement for a faulty kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace npu_train::detail {

/// Calls at::conv2d with the same stride and padding in both directions; `bias` may be undefined.
at::Tensor plain_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride, int64_t padding);

/// Returns whether oneDNN's weight gradient reads uninitialised memory, which may give NaN. This happens in bf16 with padding, a kernel
/// wider than 1 and a map narrower than the stride. The condition was found by testing 60,000 shapes; fp16 and fp32 are correct for all of
/// them.
bool has_wrong_weight_gradient(at::ScalarType dtype, const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);

/// Computes the `wanted` gradients of input, weight and bias for plain_conv2d(). Uses fp32 if has_wrong_weight_gradient().
std::array<at::Tensor, 3> library_conv2d_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                                                  int64_t padding, std::array<bool, 3> wanted);

/// Computes plain_conv2d() as one autograd node whose backward pass is library_conv2d_backward().
at::Tensor conv2d_with_right_gradient(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t stride,
                                      int64_t padding);

}  // namespace npu_train::detail
