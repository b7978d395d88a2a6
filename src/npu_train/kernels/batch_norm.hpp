/// Batch normalisation, residual addition and ReLU in one pass over CPU memory: the kernels of batch_norm_act (nn).
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// State and options of a batch norm layer. All tensors have C elements.
struct BatchNormArgs {
  at::Tensor weight;        ///< gamma; undefined: 1
  at::Tensor bias;          ///< beta; undefined: 0
  at::Tensor running_mean;  ///< updated in place in training; undefined: the statistics of the batch are always used
  at::Tensor running_var;   ///< updated with the unbiased variance, as in PyTorch
  bool training = true;
  double momentum = 0.1;  ///< weight of the new batch in the running statistics; a caller that counts batches passes 1/n
  double eps = 1e-5;
};

namespace detail {

/// Returns whether the kernels support these tensors: on the CPU, x in fp32, bf16 or fp16, parameters in fp32, a residual in the dtype of
/// x.
bool has_batch_norm_kernel(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual);

/// Computes batch_norm(x) with the statistics of x, adds `residual` if it is defined, and applies a ReLU if `relu`, as one autograd node.
/// Updates the running statistics if `bn.training`.
at::Tensor train_batch_norm(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu);

/// Like train_batch_norm(), but with the running statistics and without a backward pass.
at::Tensor evaluate_batch_norm(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu);

}  // namespace detail
}  // namespace npu_train
