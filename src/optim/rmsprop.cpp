#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>

#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {
namespace {

enum RmsPropSlots { kMeanOfSquares, kBuffer, kMeanOfGradients };

}  // namespace

const ConfigTable<RmsPropOptions>& RmsPropOptions::config_table() {
  using T = RmsPropOptions;
  static const auto table =
      ConfigTable<T>("optimizer rmsprop")
          .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
          .field("alpha", &T::alpha, "decay of the mean of squares", between(0, 1))
          .field("eps", &T::eps, "keeps the division finite", at_least(0))
          .field("momentum", &T::momentum, "how much of the last step stays; 0: none", between(0, 1))
          .field("weight_decay", &T::weight_decay, "L2, added to the gradient", at_least(0))
          .field("centered", &T::centered, "divide by the deviation of the gradient")
          .field("tensorflow", &T::tensorflow, "the variant of TensorFlow: eps inside the root, and lr inside the momentum")
          .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

RmsProp::RmsProp(ParameterSet parameters, RmsPropOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("rmsprop", "lr", options.lr);
  detail::check_at_least_zero("rmsprop", "eps", options.eps);
  detail::check_at_least_zero("rmsprop", "weight_decay", options.weight_decay);
  detail::check_share("rmsprop", "alpha", options.alpha);
  detail::check_share("rmsprop", "momentum", options.momentum);
  add_slot("square_avg", SlotKind::Wide, options.tensorflow ? 1 : 0);
  add_slot("momentum", SlotKind::Wide, 0, [has = options.momentum > 0](const Parameter&) { return has; });
  add_slot("grad_avg", SlotKind::Wide, 0, [has = options.centered](const Parameter&) { return has; });
}

void RmsProp::update(Bucket& b) {
  const auto& o = options_;
  const double decay = b.decay(o.weight_decay);
  detail::for_each_parameter(b, [&](detail::Element& e) {
    const at::Tensor g = decay != 0 ? e.gradient.add(e.value, decay) : e.gradient;
    e.state[kMeanOfSquares].mul_(o.alpha).addcmul_(g, g, 1 - o.alpha);
    at::Tensor square = e.state[kMeanOfSquares];
    if (o.centered) {
      e.state[kMeanOfGradients].lerp_(g, 1 - o.alpha);
      square = square.addcmul(e.state[kMeanOfGradients], e.state[kMeanOfGradients], -1);
    }
    const at::Tensor root = o.tensorflow ? square.add(o.eps).sqrt_() : square.sqrt().add_(o.eps);
    if (o.momentum == 0) {
      e.value.addcdiv_(g, root, -e.lr);
      return;
    }
    e.state[kBuffer].mul_(o.momentum).addcdiv_(g, root, o.tensorflow ? e.lr : 1);
    e.value.sub_(e.state[kBuffer], o.tensorflow ? 1 : e.lr);
  });
}

}  // namespace npu_train
