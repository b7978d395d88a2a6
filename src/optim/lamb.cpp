#include "npu_train/optim/lamb.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "optim/options.hpp"

namespace npu_train {
namespace {

// Everything is computed in separate tensors and copied into the state at the end, so that the device can skip the update.
void replace(const at::Tensor& target, const at::Tensor& value, const at::Tensor& skip) {
  target.copy_(skip.defined() ? at::where(skip, target, value) : value);
}

// 1 - beta^step without the digits that the subtraction loses.
at::Tensor bias_correction(double beta, const at::Tensor& step) {
  return beta == 0 ? at::ones_like(step) : at::expm1(step * std::log(beta)).neg_();
}

}  // namespace

const ConfigTable<LambOptions>& LambOptions::config_table() {
  using T = LambOptions;
  static const auto table = ConfigTable<T>("optimizer lamb")
                                .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
                                .field("betas", &T::betas, "decay of the mean of gradients and of their squares", between(0, 1))
                                .field("eps", &T::eps, "keeps the division finite", at_least(0))
                                .field("weight_decay", &T::weight_decay, "added to the update before its norm is taken", at_least(0))
                                .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Lamb::Lamb(ParameterSet parameters, LambOptions options)
    : Optimizer(options.no_decay ? split_no_decay(std::move(parameters)) : std::move(parameters), options.lr, default_groups()),
      options_(options) {
  detail::check_adam_options("lamb", options_);
  add_slot("exp_avg", SlotKind::Wide);
  add_slot("exp_avg_sq", SlotKind::Wide);
  add_slot("step", SlotKind::Number);
}

void Lamb::update(Bucket& b) {
  const double beta1 = options_.betas[0], beta2 = options_.betas[1];
  const at::Tensor skip = b.found_inf.defined() ? b.found_inf.ne(0) : at::Tensor();
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    const auto in = b.parameters[i].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;  // low-precision parameters in fp32
    const auto p = b.parameters[i].to(in), g = b.gradients[i].to(in);
    const auto step = b.slots[detail::kStep][i] + 1, t = step.to(in);
    const auto mean = at::lerp(b.slots[detail::kMean][i].to(in), g, 1 - beta1);
    const auto square = at::lerp(b.slots[detail::kSquare][i].to(in), g * g, 1 - beta2);
    auto update = (mean / bias_correction(beta1, t)).div_((square / bias_correction(beta2, t)).sqrt_().add_(options_.eps));
    if (const double decay = options_.weight_decay * b.decay_mult; decay != 0) update.add_(p, decay);
    const auto weight_norm = at::linalg_vector_norm(p), update_norm = at::linalg_vector_norm(update);
    const auto trust = at::where((weight_norm > 0).logical_and(update_norm > 0), weight_norm / update_norm, 1.0);
    replace(b.parameters[i], p - update.mul_(trust).mul_(b.lr), skip);
    replace(b.slots[detail::kMean][i], mean, skip);
    replace(b.slots[detail::kSquare][i], square, skip);
    replace(b.slots[detail::kStep][i], step, skip);
  }
}

}  // namespace npu_train
