#include "npu_train/train/step.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/optim/clip.hpp"
#include "npu_train/precision/finite_check.hpp"
#include "train/window_graph.hpp"

namespace npu_train {

TrainStep::TrainStep(Task& task, Precision& precision, Optimizer& optimizer, Ema* ema, ProcessGroup& group, const Observers& observers,
                     StepOptions options)
    : task_(task), precision_(precision), optimizer_(optimizer), ema_(ema), group_(group), observers_(observers), options_(options) {
  check(options_.clip_value >= 0 && std::isfinite(options_.clip_value) && options_.last_skip >= 0, ErrorKind::Usage, "TrainStep",
        "clip_value is ", options_.clip_value, " and last_skip ", options_.last_skip, "; allowed: finite numbers of at least 0");
  if (options_.graphs)
    graph_ = std::make_unique<detail::WindowGraph>(device_of(optimizer_.parameters()[0].value.device()), task_, optimizer_.parameters());
}

TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

Batch TrainStep::bring(const Batch& batch, int micro_batch) {
  const auto& device = optimizer_.parameters()[0].value.device();
  const auto& fields = batch.fields();
  if (!options_.bring || std::all_of(fields.begin(), fields.end(), [&](const auto& field) { return field.second.device() == device; }))
    return batch;
  phase_ = Phase::Transfer;
  return observers_.run(Phase::Transfer, attempts_, micro_batch, [&] { return options_.bring(batch); });
}

void TrainStep::accumulate(const Batch& given, int micro_batch, detail::WindowSums& window, const at::Tensor& scale) {
  at::Tensor loss;
  StepOutput output;
  micro_batch_ = micro_batch;
  const auto batch = bring(given, micro_batch);
  phase_ = Phase::Forward;
  observers_.run(Phase::Forward, attempts_, micro_batch, [&] {
    const auto scope = precision_.forward_scope();
    output = task_.training_step(precision_.cast_input(batch));
  });
  check_output(output, "TrainStep");
  observers_.show_loss(output.loss, attempts_, micro_batch);
  if (window.full_weight == 0) window.full_weight = group_.all_reduce_sum(output.weight * static_cast<double>(window.micro_batches));
  loss = share_of_window(output, window.full_weight);
  phase_ = Phase::Backward;
  observers_.run(Phase::Backward, attempts_, micro_batch, [&] {
    backend_of(device_of(loss.device())).backward(scale.defined() ? loss * scale : precision_.scale_loss(loss));
    precision_.collect_gradients();
  });

  const at::NoGradGuard no_grad;
  const auto metrics = checked_metric_sums(task_, output, batch);
  auto sums = loss.detach().to(at::kFloat).reshape({1});
  if (metrics.defined()) sums = at::cat({sums, metrics});
  window.sums = window.sums.defined() ? window.sums.add_(sums) : sums;
  window.weight += output.weight;
  window.samples += static_cast<double>(batch.size);
}

detail::WindowSums TrainStep::forward_backward(const std::vector<Batch>& batches, double full_weight) {
  const auto eagerly = [this, full_weight](const std::vector<Batch>& window, const at::Tensor& scale) {
    detail::WindowSums sums{.micro_batches = static_cast<int64_t>(window.size()), .full_weight = full_weight, .sums = {}};
    for (size_t k = 0; k < window.size(); ++k) accumulate(window[k], static_cast<int>(k), sums, scale);
    return sums;
  };
  // observers see operators and phases of micro-batches, which a replay has not
  detail::WindowSums sums;
  if (graph_ != nullptr && observers_.empty() && graph_->takes(batches, full_weight) &&
      graph_->run(
          batches, precision_.scale(),
          [&](const auto& window, const at::Tensor& scale) { return eagerly(window, precision_.may_skip() ? scale : at::Tensor()); }, sums))
    return sums;
  return eagerly(batches, {});
}

StepResult TrainStep::run(const std::vector<Batch>& batches, double full_weight) {
  check(!batches.empty(), ErrorKind::Usage, "TrainStep", "a window needs at least one batch");
  check(full_weight >= 0 && std::isfinite(full_weight), ErrorKind::Usage, "TrainStep", "full_weight is ", full_weight,
        "; it must be positive, or 0 to take it from the first batch");
  phase_ = Phase::Transfer;
  micro_batch_ = 0;
  start_kept_ = false;
  optimizer_.zero_grad();  // what the host, or a window that threw, left behind
  task_.parameters().zero_grad();
  const bool explains = options_.on_overflow && (precision_.may_skip() || options_.detect_anomaly);
  if (precision_.may_skip() || explains || options_.keep_start) keep_buffers();
  start_kept_ = true;
  if (explains && !precision_.may_skip()) clear_overflow_flags(task_.parameters().values());  // else precision_ does
  if (explains) random_ = RandomState({optimizer_.parameters()[0].value.device()});
  precision_.begin_step();
  const auto window = forward_backward(batches, full_weight);
  full_weight_ = window.full_weight;

  const at::NoGradGuard no_grad;
  const auto& parameters = optimizer_.parameters();
  const double total_weight = group_.all_reduce_sum(window.weight);
  phase_ = Phase::Reduce;
  observers_.run(Phase::Reduce, attempts_, 0, [&] {
    if (group_.world_size() > 1)
      for (const auto& p : parameters)
        if (auto grad = p.value.grad(); grad.defined()) group_.all_reduce_sum(grad);
  });
  phase_ = Phase::Unscale;
  StepGate gate = observers_.run(Phase::Unscale, attempts_, 0, [&] {
    auto g = precision_.unscale_and_check(window.full_weight / total_weight);
    if (g.found_inf.defined()) group_.all_reduce_max(g.found_inf);
    return g;
  });
  if (explains && !precision_.may_skip()) explain_anomaly(batches);
  phase_ = Phase::Clip;
  const auto norm = observers_.run(Phase::Clip, attempts_, 0, [&] { return clip(); });
  // torch_npu's fused kernels do without found_inf, or read it on the host. The host wants it after the step anyway: there it reads before.
  const bool host_decides = gate.found_inf.defined() && gate.found_inf.device().is_privateuseone();
  phase_ = Phase::Optimizer;
  observers_.run(Phase::Optimizer, attempts_, 0, [&] {
    if (!host_decides)
      optimizer_.step(gate);
    else if (!precision_.last_step_skipped())
      optimizer_.step({.inv_scale = gate.inv_scale, .found_inf = {}});
    precision_.after_step(gate);
  });

  StepResult result;
  result.taken = !precision_.may_skip() || !precision_.last_step_skipped();
  if (!result.taken) {
    restore_buffers();
    if (explains) explain_skip(batches);
  }
  precision_.update(gate);
  optimizer_.zero_grad();
  if (result.taken && ema_ != nullptr) ema_->update(parameters, host_decides ? StepGate{} : gate);
  taken_one_ |= result.taken;
  explained_ &= !result.taken;
  ++attempts_;
  result.packed = at::cat({window.sums, norm});
  result.loss_weight = window.weight / window.full_weight;
  result.weight = window.weight;
  result.samples = window.samples;
  return result;
}

void TrainStep::explain_skip(const std::vector<Batch>& window) {
  constexpr int64_t kInARow = 3, kInARowAtStart = 16;
  const int64_t streak = precision_.skip_streak() + 1;  // with this one
  const bool last = options_.last_skip > 0 && streak >= options_.last_skip && precision_.at_floor();
  if (streak != (options_.detect_anomaly ? 1 : taken_one_ ? kInARow : kInARowAtStart) && !(last && !explained_)) return;
  task_.parameters().zero_grad();  // the replay needs their memory, and nobody them
  explain(window, streak);
  explained_ = true;
}

void TrainStep::explain_anomaly(const std::vector<Batch>& window) {
  if (npu_train::unscale_and_check(optimizer_.parameters(), 1).item<float>() == 0) return;
  const auto after = buffers_;
  std::vector<at::Tensor> values;
  for (const auto& [name, buffer] : after) values.push_back(buffer.detach().clone());
  restore_buffers();
  explain(window, 0);
  for (size_t i = 0; i < values.size(); ++i) after[i].second.data().copy_(values[i]);
}

void TrainStep::explain(const std::vector<Batch>& window, int64_t streak) {
  const at::AutoGradMode recording(true);
  auto here = window;
  for (size_t k = 0; k < here.size(); ++k) here[k] = bring(here[k], static_cast<int>(k));
  auto report = explain_overflow(task_, precision_,
                                 {.window = &here,
                                  .random = random_,
                                  .restore_buffers = [this] { restore_buffers(); },
                                  .attempt = attempts_,
                                  .full_weight = full_weight_});
  report.skip_streak = streak;
  options_.on_overflow(report);
}

at::Tensor TrainStep::clip() {
  const auto& parameters = optimizer_.parameters();
  if (options_.clip_value > 0 && options_.clip_by_norm) return clip_grad_norm_(parameters, options_.clip_value).to(at::kFloat).reshape({1});
  if (options_.clip_value > 0) clip_grad_value_(parameters, options_.clip_value);
  return at::zeros({1}, parameters[0].value.options().dtype(at::kFloat).requires_grad(false));
}

void TrainStep::undo_window() {
  const at::NoGradGuard no_grad;
  optimizer_.zero_grad();
  task_.parameters().zero_grad();
  if (start_kept_) restore_buffers();
}

void TrainStep::keep_buffers() {
  const at::NoGradGuard no_grad;
  if (buffers_.empty()) buffers_ = task_.buffers();
  if (kept_.size() != buffers_.size()) kept_.clear();
  if (kept_.empty())
    for (const auto& [name, buffer] : buffers_) kept_.push_back(at::empty_like(buffer));
  for (size_t i = 0; i < kept_.size(); ++i) kept_[i].copy_(buffers_[i].second);
}

void TrainStep::restore_buffers() {
  // through .data(): autograd may still hold the version counter of a buffer that the forward saved
  for (size_t i = 0; i < kept_.size(); ++i) buffers_[i].second.data().copy_(kept_[i]);
}

}  // namespace npu_train
