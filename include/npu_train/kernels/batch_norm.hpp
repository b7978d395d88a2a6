/// Batch normalisation, residual addition and ReLU in one pass over the memory of a CPU: the kernels of batch_norm_act (nn).
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// What a batch norm layer holds. All tensors have C elements.
struct BatchNormArgs {
  at::Tensor weight;        ///< gamma; undefined: 1
  at::Tensor bias;          ///< beta; undefined: 0
  at::Tensor running_mean;  ///< moved in place in training; undefined: the batch's statistics are used always
  at::Tensor running_var;   ///< moved by the unbiased variance, as PyTorch does
  bool training = true;
  double momentum = 0.1;  ///< weight of the new batch in the running statistics; a caller who counts batches passes 1/n
  double eps = 1e-5;
};

namespace detail {

/// Whether the kernels take these tensors: on the CPU, x in fp32, bf16 or fp16, parameters in fp32, a residual in the dtype of x.
bool has_batch_norm_kernel(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual);

/// relu?(batch_norm(x) + residual?) by the statistics of x, as one autograd node. Moves the running statistics.
at::Tensor train_batch_norm(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu);

/// The same by the running statistics, without a backward pass.
at::Tensor evaluate_batch_norm(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu);

}  // namespace detail
}  // namespace npu_train
