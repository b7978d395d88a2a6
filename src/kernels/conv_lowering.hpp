// Convolutions of channels_last tensors on the CPU as matrix products: `dense` and `patches` in fp32, the others in any dtype. Tensors are
// [N, C, H, W] in memory order [N, H, W, C], weights [K, C, k, k] in memory order [K, k, k, C].
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

struct ConvShape {
  int64_t batch, in_channels, height, width, out_channels, kernel, stride, padding, out_height, out_width;

  ConvShape(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);
  int64_t in_pixels() const { return height * width; }
  int64_t out_pixels() const { return out_height * out_width; }
  int64_t taps() const { return kernel * kernel; }
  bool pointwise() const { return kernel == 1 && padding == 0; }
  // Returns whether a fully connected layer between all pixels is less work than sliding the kernel.
  bool dense() const { return kernel > 1 && in_pixels() < taps(); }
};

// For kernel 1 and padding 0.
namespace pointwise {
at::Tensor forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& weight);
at::Tensor input_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& weight);
at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x);
}  // namespace pointwise

// For any kernel; faster if s.dense().
namespace dense {
at::Tensor forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& weight);
at::Tensor input_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& weight);
}  // namespace dense

// For any kernel: one product per tap, over the pixels that the tap connects. Faster if there are few such pixels.
namespace taps {
at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x);
}

// For any kernel.
namespace patches {
at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x);
}

}  // namespace npu_train::detail
