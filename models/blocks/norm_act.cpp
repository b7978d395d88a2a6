#include "models/blocks/norm_act.hpp"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/relu.h>

#include "npu_train/nn/batch_norm_act.hpp"

namespace npu_train::detail {

at::Tensor BatchNorm2d::norm_act(const at::Tensor& x, const at::Tensor& residual, bool relu) {
  if (is_training() && num_batches_tracked.defined()) num_batches_tracked.add_(1);
  const double momentum = options.momentum().value_or(0.1);
  if (fused_) return batch_norm_act(x, {weight, bias, running_mean, running_var, is_training(), momentum, options.eps()}, residual, relu);
  at::Tensor y = at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), momentum, options.eps(), /*cudnn_enabled=*/true);
  // In place is safe: the backward of batch_norm needs only its input, and that of relu only its own result.
  if (residual.defined()) y.add_(residual);
  return relu ? at::relu_(y) : y;
}

}  // namespace npu_train::detail
