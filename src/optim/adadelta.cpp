#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>

#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {

const ConfigTable<AdadeltaOptions>& AdadeltaOptions::config_table() {
  using T = AdadeltaOptions;
  static const auto table = ConfigTable<T>("optimizer adadelta")
                                .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
                                .field("rho", &T::rho, "decay of the means of squares", between(0, 1))
                                .field("eps", &T::eps, "keeps the division finite, and the first steps above 0", at_least(0))
                                .field("weight_decay", &T::weight_decay, "L2, added to the gradient", at_least(0))
                                .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Adadelta::Adadelta(ParameterSet parameters, AdadeltaOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("adadelta", "lr", options.lr);
  detail::check_at_least_zero("adadelta", "eps", options.eps);
  detail::check_at_least_zero("adadelta", "weight_decay", options.weight_decay);
  detail::check_share("adadelta", "rho", options.rho);
  add_slot("square_avg", SlotKind::Wide);
  add_slot("acc_delta", SlotKind::Wide);
}

void Adadelta::update(Bucket& b) {
  const double decay = b.decay(options_.weight_decay), rho = options_.rho;
  detail::for_each_parameter(b, [&](detail::Element& e) {
    const at::Tensor g = decay != 0 ? e.gradient.add(e.value, decay) : e.gradient;
    auto &squares = e.state[0], &deltas = e.state[1];
    squares.mul_(rho).addcmul_(g, g, 1 - rho);
    const at::Tensor delta = deltas.add(options_.eps).sqrt_().div_(squares.add(options_.eps).sqrt_()).mul_(g);
    deltas.mul_(rho).addcmul_(delta, delta, 1 - rho);
    e.value.sub_(delta, e.lr);
  });
}

}  // namespace npu_train
