#include "npu_train/optim/optimizers.hpp"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/where.h>

#include "npu_train/device/backend.hpp"
#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {

const ConfigTable<SgdOptions>& SgdOptions::config_table() {
  using T = SgdOptions;
  static const auto table = ConfigTable<T>("optimizer sgd")
                                .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
                                .field("momentum", &T::momentum, "how much of the last step stays; 0: none", between(0, 1))
                                .field("weight_decay", &T::weight_decay, "L2, added to the gradient", at_least(0))
                                .field("dampening", &T::dampening, "share of a gradient that the momentum leaves out", between(0, 1))
                                .field("maximize", &T::maximize, "follow the gradient uphill")
                                .field("nesterov", &T::nesterov, "look ahead along the momentum")
                                .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Sgd::Sgd(ParameterSet parameters, SgdOptions options) : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("sgd", "lr", options.lr);
  detail::check_at_least_zero("sgd", "weight_decay", options.weight_decay);
  check(options.momentum >= 0 && options.momentum <= 1, ErrorKind::Usage, "sgd", "momentum is ", options.momentum,
        "; it must be between 0 and 1");
  check(!options.nesterov || options.momentum > 0, ErrorKind::Usage, "sgd", "nesterov is true and momentum 0; it needs a momentum above 0");
  detail::check_share("sgd", "dampening", options.dampening);
  check(!options.nesterov || options.dampening == 0, ErrorKind::Usage, "sgd", "nesterov is true and dampening ", options.dampening,
        "; nesterov needs a dampening of 0");
  check(options.dampening == 0 || options.momentum > 0, ErrorKind::Usage, "sgd", "dampening is ", options.dampening,
        " and momentum 0; dampening needs a momentum above 0");
  if (options_.momentum > 0) add_slot("momentum", options.dampening > 0 ? SlotKind::Wide : SlotKind::LikeParameter);
  if (options_.dampening > 0) add_slot("step", SlotKind::Number);
}

// Updates with dampening. A parameter's first gradient is not damped. The fused kernels learn from the host which step is the first; here
// the device decides, because it may have skipped steps.
void Sgd::update_damped(Bucket& b, double decay) {
  detail::for_each_parameter(b, [&](detail::Element& e) {
    const at::Tensor g = decay != 0 ? e.gradient.add(e.value, decay) : e.gradient;
    const at::Tensor share = at::where(e.state[1] > 0, 1 - options_.dampening, 1.0).to(g.scalar_type());
    e.value.sub_(e.state[0].mul_(options_.momentum).add_(g * share), e.lr);
    e.state[1].add_(1);
  });
}

// Updates in fp32 and rounds once: libtorch's fused CPU kernel does not update full vectors of fp16 and bf16 numbers (pytorch #191763).
void Sgd::update_low(Bucket& b, double decay) {
  const auto widened = [](const at::Tensor& t) { return std::vector<at::Tensor>{t.detach().to(at::kFloat)}; };
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    auto value = widened(b.parameters[i]), gradient = widened(b.gradients[i]);
    auto momentum = options_.momentum > 0 ? widened(b.slots[0][i]) : std::vector<at::Tensor>();
    fused(value, gradient, momentum, b, decay);
    b.parameters[i].copy_(value[0]);
    if (!momentum.empty()) b.slots[0][i].copy_(momentum[0]);
  }
}

void Sgd::fused(at::TensorList parameters, at::TensorList gradients, at::TensorList momentum, const Bucket& b, double decay) const {
  at::_fused_sgd_(parameters, gradients, momentum, decay, options_.momentum, b.lr, /*dampening=*/0, options_.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, /*grad_scale=*/{}, b.found_inf.defined() ? std::optional(b.found_inf) : std::nullopt);
}

void Sgd::update(Bucket& b) {
  const double decay = b.decay(options_.weight_decay);
  if (options_.maximize) b.gradients = at::_foreach_neg(b.gradients);
  if (options_.dampening > 0) return update_damped(b, decay);
  const auto& first = b.parameters.front();
  if (first.is_cpu() && is_low_precision(b)) return update_low(b, decay);
  if (!(options_.momentum > 0 ? has_fused_sgd(first.device()) : has_all_fused_optimizers(first.device()))) {
    if (b.found_inf.defined() && b.found_inf.item<float>() != 0) return;  // foreach kernels accept no flag, so the host reads it
    if (decay != 0) b.gradients = at::_foreach_add(b.gradients, b.parameters, decay);
    if (options_.momentum > 0) {
      const at::TensorList momentum = b.slots[0];
      at::_foreach_mul_(momentum, options_.momentum);
      at::_foreach_add_(momentum, b.gradients);
      b.gradients = options_.nesterov ? at::_foreach_add(b.gradients, momentum, options_.momentum) : momentum.vec();
    }
    at::_foreach_add_(b.parameters, b.gradients, -b.lr);
    return;
  }
  fused(b.parameters, b.gradients, options_.momentum > 0 ? at::TensorList(b.slots[0]) : at::TensorList(), b, decay);
}

}  // namespace npu_train
