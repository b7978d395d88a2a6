#include "npu_train/optim/adam.hpp"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/rsub.h>

#include "npu_train/optim/adamw.hpp"
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
      .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
}

// The kernels divide by corrections of the step count that they are given, and leave counting to the caller.
void count_step(const std::vector<at::Tensor>& steps, const at::Tensor& found_inf) {
  if (found_inf.defined())
    at::_foreach_add_(steps, at::rsub(found_inf, 1));
  else
    at::_foreach_add_(steps, 1);
}

template <class Bucket>
std::optional<at::Tensor> found_inf_of(const Bucket& b) {
  return b.found_inf.defined() ? std::optional(b.found_inf) : std::nullopt;
}

template <class Bucket, class Options>
void fused_adamw(Bucket& b, const Options& options, double weight_decay) {
  at::_fused_adamw_(b.parameters, b.gradients, b.slots[detail::kMean], b.slots[detail::kSquare], /*max_exp_avg_sqs=*/{},
                    b.slots[detail::kStep], b.lr, options.betas[0], options.betas[1], weight_decay, options.eps, /*amsgrad=*/false,
                    /*maximize=*/false, /*grad_scale=*/{}, found_inf_of(b));
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
    : Optimizer(options.no_decay ? split_no_decay(std::move(parameters)) : std::move(parameters), options.lr, default_groups()),
      options_(options) {
  detail::check_adam_options("adam", options_);
  add_slot("exp_avg");
  add_slot("exp_avg_sq");
  add_slot("step", /*like_parameter=*/false);
}

void Adam::update(Bucket& b) {
  count_step(b.slots[detail::kStep], b.found_inf);
  const double decay = options_.weight_decay * b.decay_mult;
  if (b.parameters.front().is_privateuseone()) {  // torch_npu has _fused_adamw_ alone, which is the same but for the decay
    if (decay != 0) b.gradients = at::_foreach_add(b.gradients, b.parameters, decay);
    fused_adamw(b, options_, /*weight_decay=*/0);
    return;
  }
  at::_fused_adam_(b.parameters, b.gradients, b.slots[detail::kMean], b.slots[detail::kSquare], /*max_exp_avg_sqs=*/{},
                   b.slots[detail::kStep], b.lr, options_.betas[0], options_.betas[1], decay, options_.eps, /*amsgrad=*/false,
                   /*maximize=*/false, /*grad_scale=*/{}, found_inf_of(b));
}

AdamW::AdamW(ParameterSet parameters, AdamWOptions options)
    : Optimizer(options.no_decay ? split_no_decay(std::move(parameters)) : std::move(parameters), options.lr, default_groups()),
      options_(options) {
  detail::check_adam_options("adamw", options_);
  add_slot("exp_avg");
  add_slot("exp_avg_sq");
  add_slot("step", /*like_parameter=*/false);
}

void AdamW::update(Bucket& b) {
  count_step(b.slots[detail::kStep], b.found_inf);
  fused_adamw(b, options_, options_.weight_decay * b.decay_mult);
}

}  // namespace npu_train
