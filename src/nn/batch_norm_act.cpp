#include "npu_train/nn/batch_norm_act.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/precision/fp32_ops.hpp"
#include "npu_train/trace/op_mode.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {
namespace {

constexpr const char* kBatchNormAct = "batch_norm_act";

void check_sizes(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual) {
  check(x.defined() && x.dim() >= 2, ErrorKind::Usage, kBatchNormAct, "x must be [N, C, ...]");
  const int64_t channels = x.size(1);
  const auto fits = [&](const at::Tensor& t, const char* name) {
    check(!t.defined() || (t.dim() == 1 && t.size(0) == channels), ErrorKind::Usage, kBatchNormAct, name, " has sizes ",
          t.defined() ? t.sizes() : at::IntArrayRef(), "; x ", x.sizes(), " asks for [", channels, "]");
  };
  fits(bn.weight, "weight");
  fits(bn.bias, "bias");
  fits(bn.running_mean, "running_mean");
  fits(bn.running_var, "running_var");
  check(!residual.defined() || residual.sizes() == x.sizes(), ErrorKind::Usage, kBatchNormAct, "the residual has sizes ",
        residual.defined() ? residual.sizes() : at::IntArrayRef(), ", x ", x.sizes(), "; they must be equal");
}

at::Tensor by_aten(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu, bool training) {
  at::Tensor y = at::batch_norm(x, bn.weight, bn.bias, bn.running_mean, bn.running_var, training, bn.momentum, bn.eps, true);
  if (residual.defined()) y = y.scalar_type() == residual.scalar_type() ? y.add_(residual) : at::add(y, residual);
  return relu ? at::relu_(y) : y;
}

}  // namespace

at::Tensor batch_norm_act(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu) {
  check_sizes(x, bn, residual);
  const bool training = bn.training || !bn.running_mean.defined() || !bn.running_var.defined();
  check(!training || x.numel() != x.size(1), ErrorKind::Usage, kBatchNormAct, "training needs more than one value per channel; x is ",
        x.sizes(), "; hint: use larger images or batches; data.drop_last=true omits a last batch of one sample");
  return translated(kBatchNormAct, [&]() -> at::Tensor {
    if (!detail::has_batch_norm_kernel(x, bn, residual) || in_fp32_ops("batch_norm") || detail::in_op_mode())
      return by_aten(x, bn, residual, relu, training);
    const bool tracked = at::GradMode::is_enabled() && (x.requires_grad() || bn.weight.requires_grad() || bn.bias.requires_grad() ||
                                                        (residual.defined() && residual.requires_grad()));
    if (tracked && !training) return by_aten(x, bn, residual, relu, false);
    detail::RecordedOp record("npu_train::batch_norm_act",
                              [&] { return std::vector<c10::IValue>{x, bn.weight, bn.bias, bn.running_mean, bn.running_var, residual}; });
    if (!training) return record.result(detail::evaluate_batch_norm(x, bn, residual, relu));
    return record.result(detail::train_batch_norm(x, bn, residual, relu));
  });
}

}  // namespace npu_train
