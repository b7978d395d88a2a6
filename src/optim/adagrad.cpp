#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>

#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {
namespace {

enum AdagradSlots { kSumOfSquares, kAdagradStep };

}  // namespace

const ConfigTable<AdagradOptions>& AdagradOptions::config_table() {
  using T = AdagradOptions;
  static const auto table =
      ConfigTable<T>("optimizer adagrad")
          .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
          .field("lr_decay", &T::lr_decay, "the rate of step t is lr / (1 + (t - 1) * lr_decay)", at_least(0))
          .field("weight_decay", &T::weight_decay, "L2, added to the gradient", at_least(0))
          .field("initial_accumulator_value", &T::initial_accumulator_value, "where the sums of squares start", at_least(0))
          .field("eps", &T::eps, "keeps the division finite", at_least(0))
          .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Adagrad::Adagrad(ParameterSet parameters, AdagradOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("adagrad", "lr", options.lr);
  detail::check_at_least_zero("adagrad", "lr_decay", options.lr_decay);
  detail::check_at_least_zero("adagrad", "weight_decay", options.weight_decay);
  detail::check_at_least_zero("adagrad", "initial_accumulator_value", options.initial_accumulator_value);
  detail::check_at_least_zero("adagrad", "eps", options.eps);
  add_slot("sum", SlotKind::Wide, options.initial_accumulator_value);
  add_slot("step", SlotKind::Number, 0, [has = options.lr_decay > 0](const Parameter&) { return has; });
}

void Adagrad::update(Bucket& b) {
  const double decay = b.decay(options_.weight_decay);
  detail::for_each_parameter(b, [&](detail::Element& e) {
    const at::Tensor g = decay != 0 ? e.gradient.add(e.value, decay) : e.gradient;
    e.state[kSumOfSquares].addcmul_(g, g);
    const at::Tensor root = e.state[kSumOfSquares].sqrt().add_(options_.eps);
    if (!e.state[kAdagradStep].defined()) {
      e.value.addcdiv_(g, root, -e.lr);
      return;
    }
    const at::Tensor before = e.state[kAdagradStep].to(g.scalar_type());
    e.value.sub_((g / root).mul_(e.lr / (before * options_.lr_decay + 1)));
    e.state[kAdagradStep].add_(1);
  });
}

}  // namespace npu_train
