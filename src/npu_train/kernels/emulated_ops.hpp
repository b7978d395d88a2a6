/// Emulated low-precision operators of the CPU, with backward passes: they compute in fp32 and round once.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace npu_train::detail {

/// Returns beta * c + alpha * a * b, where a and b are matrices or batches of matrices, and c is broadcast.
at::Tensor emulated_product(const std::optional<at::Tensor>& c, const at::Tensor& a, const at::Tensor& b, double beta = 1,
                            double alpha = 1);

/// Options of at::convolution.
struct ConvolutionArgs {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

/// Emulates at::convolution.
at::Tensor emulated_convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                const ConvolutionArgs& args);

/// Options of at::scaled_dot_product_attention.
struct AttentionArgs {
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  bool grouped_heads = false;
};

/// Emulates at::scaled_dot_product_attention, with scores and softmax in fp32.
at::Tensor emulated_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                              const AttentionArgs& args);

}  // namespace npu_train::detail
