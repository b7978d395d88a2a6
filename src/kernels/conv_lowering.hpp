// Convolutions of channels_last tensors on the CPU, as matrix products: dense and patches of fp32, the others of any type. All tensors are
// [N, C, H, W] lying as [N, H, W, C], weights [K, C, k, k] lying as [K, k, k, C].
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
  // A fully connected layer between all pixels is less work than sliding the kernel.
  bool dense() const { return kernel > 1 && in_pixels() < taps(); }
};

// kernel 1, padding 0.
namespace pointwise {
at::Tensor forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& weight);
at::Tensor input_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& weight);
at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x);
}  // namespace pointwise

// Any kernel; worth it where s.dense().
namespace dense {
at::Tensor forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& weight);
at::Tensor input_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& weight);
}  // namespace dense

// Any kernel: one product for each tap, over the pixels that it joins. Worth it where those are few.
namespace taps {
at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x);
}

// Any kernel.
namespace patches {
at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x);
}

}  // namespace npu_train::detail
