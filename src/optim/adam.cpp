#include "npu_train/optim/optimizers.hpp"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/rsub.h>

#include "npu_train/device/backend.hpp"
#include "optim/options.hpp"

namespace npu_train {
namespace {

template <class T>
ConfigTable<T> adam_table(const std::string& title, const std::string& decay_doc) {
  return ConfigTable<T>(title)
      .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
      .field("betas", &T::betas, "decay of the mean of gradients and of their squares", between(0, 1))
      .field("eps", &T::eps, "keeps the division finite", at_least(0))
      .field("weight_decay", &T::weight_decay, decay_doc, at_least(0))
      .field("amsgrad", &T::amsgrad, "divide by the largest mean of squares so far")
      .field("maximize", &T::maximize, "follow the gradient uphill")
      .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
}

// Counts the step: the fused kernels read the count for the bias correction, but do not increment it.
void count_step(const std::vector<at::Tensor>& steps, const at::Tensor& found_inf) {
  if (found_inf.defined())
    at::_foreach_add_(steps, at::rsub(found_inf, 1));
  else
    at::_foreach_add_(steps, 1);
}

// Arguments of a fused kernel. All tensors in its lists have one dtype.
struct Operands {
  at::TensorList parameters, gradients, mean, square, steps, largest;
  double lr;
  std::optional<at::Tensor> found_inf;
};

template <class Options>
void fused_adamw(const Operands& o, const Options& options, double weight_decay) {
  at::_fused_adamw_(o.parameters, o.gradients, o.mean, o.square, o.largest, o.steps, o.lr, options.betas[0], options.betas[1], weight_decay,
                    options.eps, options.amsgrad, /*maximize=*/false, /*grad_scale=*/{}, o.found_inf);
}

// Counts the step and updates the bucket with `fused`. fp16 and bf16 parameters are updated in fp32, the dtype of their state, and rounded
// once: in fp16, the squares of gradients below 2e-4 would be 0, and the step would divide by eps alone.
template <class Bucket, class Fn>
void step_bucket(Bucket& b, bool low_precision, bool maximize, const Fn& fused) {
  if (maximize) b.gradients = at::_foreach_neg(b.gradients);
  count_step(b.slots[detail::kStep], b.found_inf);
  const auto found_inf = b.found_inf.defined() ? std::optional(b.found_inf) : std::nullopt;
  const auto &mean = b.slots[detail::kMean], &square = b.slots[detail::kSquare], &steps = b.slots[detail::kStep];
  const auto largest = b.slots.size() > detail::kLargestSquare ? b.slots[detail::kLargestSquare] : std::vector<at::Tensor>();
  if (!low_precision) return fused(Operands{b.parameters, b.gradients, mean, square, steps, largest, b.lr, found_inf});
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    const at::Tensor value = b.parameters[i].detach().to(at::kFloat), gradient = b.gradients[i].to(at::kFloat);
    fused(Operands{value, gradient, mean[i], square[i], steps[i], largest.empty() ? at::TensorList() : largest[i], b.lr, found_inf});
    b.parameters[i].copy_(value);
  }
}

}  // namespace

const ConfigTable<AdamOptions>& AdamOptions::config_table() {
  static const auto table = adam_table<AdamOptions>("optimizer adam", "L2, added to the gradient");
  return table;
}

const ConfigTable<AdamWOptions>& AdamWOptions::config_table() {
  static const auto table = adam_table<AdamWOptions>("optimizer adamw", "share of lr by which weights shrink in each step");
  return table;
}

Adam::Adam(ParameterSet parameters, AdamOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_adam_options("adam", options_);
  add_slot("exp_avg", SlotKind::Wide);
  add_slot("exp_avg_sq", SlotKind::Wide);
  add_slot("step", SlotKind::Number);
  if (options.amsgrad) add_slot("max_exp_avg_sq", SlotKind::Wide);
}

void Adam::update(Bucket& b) {
  const double decay = b.decay(options_.weight_decay);
  step_bucket(b, is_low_precision(b), options_.maximize, [&](const Operands& o) {
    if (!has_all_fused_optimizers(o.parameters.front().device())) {  // _fused_adamw_ differs from _fused_adam_ only in the decay
      auto decayed = o;
      const auto gradients = decay != 0 ? at::_foreach_add(o.gradients, o.parameters, decay) : o.gradients.vec();
      decayed.gradients = gradients;
      return fused_adamw(decayed, options_, /*weight_decay=*/0);
    }
    at::_fused_adam_(o.parameters, o.gradients, o.mean, o.square, o.largest, o.steps, o.lr, options_.betas[0], options_.betas[1], decay,
                     options_.eps, options_.amsgrad, /*maximize=*/false, /*grad_scale=*/{}, o.found_inf);
  });
}

AdamW::AdamW(ParameterSet parameters, AdamWOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_adam_options("adamw", options_);
  add_slot("exp_avg", SlotKind::Wide);
  add_slot("exp_avg_sq", SlotKind::Wide);
  add_slot("step", SlotKind::Number);
  if (options.amsgrad) add_slot("max_exp_avg_sq", SlotKind::Wide);
}

void AdamW::update(Bucket& b) {
  step_bucket(b, is_low_precision(b), options_.maximize,
              [&](const Operands& o) { fused_adamw(o, options_, b.decay(options_.weight_decay)); });
}

}  // namespace npu_train
