#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>

#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {

const ConfigTable<LionOptions>& LionOptions::config_table() {
  using T = LionOptions;
  static const auto table = ConfigTable<T>("optimizer lion")
                                .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
                                .field("betas", &T::betas, "share of the momentum in a step, and decay of the momentum", between(0, 1))
                                .field("weight_decay", &T::weight_decay, "share of lr by which weights shrink in each step", at_least(0))
                                .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Lion::Lion(ParameterSet parameters, LionOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("lion", "lr", options.lr);
  detail::check_at_least_zero("lion", "weight_decay", options.weight_decay);
  detail::check_betas("lion", options.betas);
  add_slot("exp_avg", SlotKind::Wide);
}

void Lion::update(Bucket& b) {
  const double decay = b.decay(options_.weight_decay);
  detail::for_each_parameter(b, [&](detail::Element& e) {
    auto& momentum = e.state[0];
    if (decay != 0) e.value.mul_(1 - e.lr * decay);
    e.value.sub_(momentum.lerp(e.gradient, 1 - options_.betas[0]).sign_(), e.lr);
    momentum.lerp_(e.gradient, 1 - options_.betas[1]);
  });
}

}  // namespace npu_train
