// The one place where the residual networks normalise and activate.
#pragma once

#include <torch/nn/modules/batchnorm.h>

namespace npu_train::detail {

// Batch normalisation that adds a shortcut and activates, as one kernel if there is one.
class BatchNorm2d : public torch::nn::BatchNorm2dImpl {
 public:
  BatchNorm2d(int64_t channels, bool fused) : torch::nn::BatchNorm2dImpl(channels), fused_(fused) {}

  // relu?(batch_norm(x) + residual?). `residual` may be undefined; neither x nor residual is changed. Running statistics move in
  // training mode.
  at::Tensor norm_act(const at::Tensor& x, const at::Tensor& residual, bool relu);

 private:
  bool fused_;
};

}  // namespace npu_train::detail
