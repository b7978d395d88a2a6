#include "npu_train/optim/average.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "npu_train/base/saved_part.hpp"
#include "npu_train/core/error.hpp"
#include "optim/first_names.hpp"

namespace npu_train {
namespace {

constexpr const char* kAverage = "WeightAverage";

std::vector<at::Tensor> tensors_of(const WeightAverage::Buffers& buffers) {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : buffers) out.push_back(tensor);
  return out;
}

at::ScalarType average_type(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Returns the complete parameters of a set that may contain slices.
ParameterSet complete(const ParameterSet& parameters) {
  ParameterSet out;
  for (const auto& p : parameters) out.add({.name = p.name, .value = p.whole(), .group = p.group});
  out.add_aliases_of(parameters);
  return out;
}

}  // namespace

namespace detail {

void lerp_unless(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources, const at::Tensor& weight,
                 const at::Tensor& found_inf) {
  // Takes an SGD step along (target - source) with `weight` as the learning rate, because the fused SGD kernel is the only one with a flag
  // that leaves every bit unchanged.
  const auto distance = at::_foreach_sub(targets, sources);
  at::_fused_sgd_(targets, distance, /*momentum_buffer_list=*/{}, /*weight_decay=*/0, /*momentum=*/0, weight, /*dampening=*/0,
                  /*nesterov=*/false,
                  /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
}

}  // namespace detail

const ConfigTable<AverageOptions>& AverageOptions::config_table() {
  using T = AverageOptions;
  static const auto table =
      ConfigTable<T>("average")
          .field("enabled", &T::enabled, "keep an average of the weights, and validate with it; a section that is given is enabled")
          .field(
              "kind", &T::kind,
              "ema: a moving average of all steps; swa: equal averages of weights from the end of the run (stochastic weight averaging); "
              "checkpoints: the mean of the last checkpoints, made when the run has ended",
              one_of({"ema", "swa", "checkpoints"}))
          .field("decay", &T::decay, "of ema: how much of the average stays in each step", between(0, 1))
          .field("warmup", &T::warmup, "of ema: a smaller decay, (1 + n) / (10 + n), in the first steps")
          .field("start", &T::start,
                 "of swa: below 1, the share of the run that comes before the averages; from 1, the number of epochs before them",
                 at_least(0))
          .field("every", &T::every, "of swa: steps between updates of the average; 0: one update at the end of each epoch", at_least(0))
          .field("lr", &T::lr, "of swa: the learning rate after the start; 0: as lr_scheduler says", at_least(0))
          .field("anneal_epochs", &T::anneal_epochs, "of swa: epochs in which the rate moves to lr", at_least(0))
          .field("anneal", &T::anneal, "of swa: the curve of that move", one_of({"cosine", "linear"}, {{"cos", "cosine"}}))
          .field("last", &T::last, "of checkpoints: how many of the newest ones are averaged", at_least(1))
          .field("of", &T::of, "of a task with several optimizers: the name of the one whose parameters are averaged; must be given there")
          .synonym("swa_lrs", "lr")
          .synonym("swa_lr", "lr")
          .synonym("swa_epoch_start", "start")
          .synonym("annealing_epochs", "anneal_epochs")
          .synonym("annealing_strategy", "anneal")
          .synonym("anneal_strategy", "anneal");
  return table;
}

int64_t AverageOptions::before_averages(int64_t length) const {
  constexpr double kRounding = 1e-12;  // 0.55 * 100 is above 55
  return static_cast<int64_t>(std::ceil(start * static_cast<double>(length) * (1 - kRounding)));
}

WeightAverage::WeightAverage(const ParameterSet& parameters, AverageOptions options, Buffers buffers, ParameterSet model)
    : options_(options), model_(model.empty() ? complete(parameters) : std::move(model)), buffers_(std::move(buffers)) {
  check_limits(options_, "average");
  averages_ = averages_of(parameters);
  for (const auto& [name, tensor] : buffers_) buffer_copies_.emplace_back(name, tensor.detach().clone());
}

ParameterSet WeightAverage::averages_of(const ParameterSet& parameters) const {
  check(!parameters.empty(), ErrorKind::Usage, kAverage, "there are no parameters to average");
  const auto device = parameters[0].value.device();
  ParameterSet out;
  for (const auto& p : parameters) {
    check(p.value.device() == device, ErrorKind::Usage, kAverage, "the parameters are on more than one device");
    const auto* target = model_.find(p.name);
    check(target != nullptr && (target->is_same_part(p) || target->value.sizes() == p.whole().sizes()), ErrorKind::Usage, kAverage,
          "the model has no parameter ", p.name, " of the same shape");
    const auto* had = averages_.find(p.name);
    auto average = p;
    average.value = had != nullptr && had->is_same_part(p)
                        ? had->value
                        : p.value.detach().to(average_type(p.value), /*non_blocking=*/false, /*copy=*/true);
    out.add(std::move(average));
  }
  return out;
}

void WeightAverage::set_parameters(const ParameterSet& parameters) {
  if (fills_slices()) model_ = parameters;
  averages_ = averages_of(parameters);
}

bool WeightAverage::fills_slices() const {
  return std::any_of(model_.begin(), model_.end(), [](const Parameter& p) { return p.is_slice(); });
}

void WeightAverage::update(const ParameterSet& parameters, const StepDecision& decision) {
  check(parameters.size() == averages_.size(), ErrorKind::Usage, kAverage, "update() got ", parameters.size(), " parameters; it averages ",
        averages_.size());
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> sources;
  for (size_t i = 0; i < parameters.size(); ++i) {
    check(parameters[i].name == averages_[i].name, ErrorKind::Usage, kAverage, "update() got ", parameters[i].name, " in the place of ",
          averages_[i].name);
    sources.push_back(parameters[i].value.detach().to(averages_[i].value.scalar_type()));
  }
  auto found_inf = decision.found_inf;
  if (found_inf.defined() && found_inf.device().is_cpu()) {  // the host can read the flag for free
    if (found_inf.item<float>() != 0) return;
    found_inf.reset();
  }
  if (!found_inf.defined()) {
    ++updates_;
    at::_foreach_lerp_(averages_.values(), sources, weight_of(static_cast<double>(updates())));
    take_buffers();
    return;
  }
  update_gated(sources, found_inf.ne(0));
}

// Returns the weight of the parameters in update number `update`, counted from 1.
double WeightAverage::weight_of(double update) const {
  if (!follows_steps()) return 1 / update;
  return 1 - (options_.warmup ? std::min(options_.decay, (1 + update) / (10 + update)) : options_.decay);
}

void WeightAverage::take_buffers() {
  const c10::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(tensors_of(buffer_copies_), tensors_of(buffers_));
}

void WeightAverage::reset() {
  updates_ = 0;
  device_updates_.reset();
}

void WeightAverage::update_gated(const std::vector<at::Tensor>& sources, const at::Tensor& skip) {
  if (!device_updates_.defined()) device_updates_ = at::zeros({}, skip.options().dtype(at::kFloat));
  const auto n = device_updates_ + static_cast<double>(updates_) + 1;
  at::Tensor weight = follows_steps() ? at::full_like(n, 1 - options_.decay) : at::reciprocal(n);
  if (follows_steps() && options_.warmup) weight = at::maximum(weight, at::rsub((n + 1) / (n + 10), 1));
  for (const auto type : {at::kFloat, at::kDouble}) {  // fused kernels accept one dtype at a time
    std::vector<at::Tensor> averages, values;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].scalar_type() != type) continue;
      averages.push_back(averages_[i].value);
      values.push_back(sources[i]);
    }
    if (!averages.empty()) detail::lerp_unless(averages, values, weight, skip.to(at::kFloat));
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    auto& copy = buffer_copies_[i].second;
    copy.copy_(at::where(skip, copy, buffers_[i].second));
  }
  device_updates_.add_(at::rsub(skip.to(at::kFloat), 1));
}

int64_t WeightAverage::updates() const {
  return updates_ + (device_updates_.defined() ? static_cast<int64_t>(device_updates_.item<float>()) : 0);
}

State WeightAverage::state() const {
  State out;
  out.values["updates"] = updates();
  if (!follows_steps()) out.values["kind"] = options_.kind;
  for (const auto& p : averages_) out.tensors["average/" + p.name] = p.value;
  for (const auto& [name, tensor] : buffer_copies_) out.tensors["buffer/" + name] = tensor;
  return out;
}

void WeightAverage::load_state(const State& saved) {
  const auto updates = saved.integer("updates", "ema");
  check(updates >= 0, ErrorKind::Checkpoint, kAverage, "updates is ", updates);
  const auto kind = saved.values.count("kind") > 0 ? saved.text("kind", "ema") : std::string("ema");
  check(kind == options_.kind, ErrorKind::Checkpoint, kAverage, "the saved averages are of kind ", kind,
        ", and this run makes some of kind ", options_.kind, "; hint: average.kind=", kind);
  const auto own = this->state();
  const auto state = detail::under_first_names(saved, own, model_, "ema");
  std::vector<std::pair<at::Tensor, at::Tensor>> entries;
  const auto load = [&](const std::string& key, const at::Tensor& to, at::IntArrayRef sizes, const auto& part_of) {
    const auto found = state.tensors.find(key);
    check(found != state.tensors.end(), ErrorKind::Checkpoint, kAverage, "the saved state has no ", key,
          "; hint: its averages are of other parameters: resume with the same model and average.of");
    const at::Tensor part = part_of(found->second);
    check(part.defined(), ErrorKind::Checkpoint, kAverage, key, " has the shape ", found->second.sizes(), " in the saved state, ", sizes,
          " here");
    entries.emplace_back(to, part);
  };
  for (const auto& p : averages_)
    load("average/" + p.name, p.value, p.whole().sizes(), [&p](const at::Tensor& value) { return detail::saved_part(p, value); });
  for (const auto& copy : buffer_copies_) {
    const auto& to = copy.second;
    load("buffer/" + copy.first, to, to.sizes(),
         [&to](const at::Tensor& value) { return value.sizes() == to.sizes() ? value : at::Tensor(); });
  }
  for (const auto& [key, tensor] : state.tensors)
    check(own.tensors.count(key) != 0, ErrorKind::Checkpoint, kAverage, "the saved state has ", key, ", which this model does not have");
  const c10::NoGradGuard no_grad;
  for (const auto& [to, from] : entries) to.copy_(from);
  updates_ = updates;
  device_updates_.reset();
}

AverageSwap::AverageSwap(WeightAverage& average, const Fill& fill) : average_(average) {
  const bool slices = std::any_of(average.averages_.begin(), average.averages_.end(), [](const Parameter& p) { return p.is_slice(); });
  check(!slices || fill || average.fills_slices(), ErrorKind::Usage, kAverage,
        "has averages of slices, which do not fill a model; hint: give AverageSwap a `fill`");
  const c10::NoGradGuard no_grad;
  const auto model = targets();
  for (const auto& target : model) parameters_.push_back(target.clone());
  const auto averages = average_.averages_.values();
  if (fill)
    fill(averages, model);
  else
    for (size_t i = 0; i < model.size(); ++i) model[i].copy_(averages[i]);  // also from the host, if averages are offloaded
  for (size_t i = 0; i < average_.buffers_.size(); ++i) {
    const auto& target = average_.buffers_[i].second;
    buffers_.push_back(target.detach().clone());
    target.detach().copy_(average_.buffer_copies_[i].second);
  }
}

// Returns the model's parameters in the order of the averages.
std::vector<at::Tensor> AverageSwap::targets() const {
  std::vector<at::Tensor> out;
  for (const auto& average : average_.averages_) out.push_back(average_.model_.find(average.name)->value.detach());
  return out;
}

AverageSwap::~AverageSwap() {
  const c10::NoGradGuard no_grad;
  at::_foreach_copy_(targets(), parameters_);
  for (size_t i = 0; i < buffers_.size(); ++i) average_.buffers_[i].second.detach().copy_(buffers_[i]);
}

}  // namespace npu_train
