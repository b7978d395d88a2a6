// Normalisation and activation of the residual networks.
#pragma once

#include <torch/nn/modules/batchnorm.h>

namespace npu_train::detail {

// Batch normalisation with shortcut addition and activation, as one kernel if available.
class BatchNorm2d : public torch::nn::BatchNorm2dImpl {
 public:
  BatchNorm2d(int64_t channels, bool fused) : torch::nn::BatchNorm2dImpl(channels), fused_(fused) {}

  // Computes relu?(batch_norm(x) + residual?). `residual` may be undefined; neither x nor residual is changed. Updates the running
  // statistics in training mode.
  at::Tensor norm_act(const at::Tensor& x, const at::Tensor& residual, bool relu);

 private:
  bool fused_;
};

}  // namespace npu_train::detail
