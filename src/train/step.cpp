#include "npu_train/train/step.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/optim/clip.hpp"
#include "train/kept_buffers.hpp"
#include "train/overflow_forensics.hpp"
#include "train/window_graph.hpp"

namespace npu_train {

namespace {

bool lies_on(const Batch& batch, const at::Device& device) {
  const auto& fields = batch.fields();
  return std::all_of(fields.begin(), fields.end(), [&](const auto& field) { return field.second.device() == device; });
}

// torch_npu's fused kernels do without found_inf, or read it on the host. The host wants it after the step anyway: there it reads before.
bool host_decides(const StepGate& gate) { return gate.found_inf.defined() && gate.found_inf.device().is_privateuseone(); }

}  // namespace

TrainStep::TrainStep(Task& task, Precision& precision, Optimizer& optimizer, Ema* ema, ProcessGroup& group, const Observers& observers,
                     StepOptions options)
    : task_(task), precision_(precision), optimizer_(optimizer), ema_(ema), group_(group), observers_(observers), options_(options) {
  check(options_.clip_value >= 0 && std::isfinite(options_.clip_value) && options_.last_skip >= 0, ErrorKind::Usage, "TrainStep",
        "clip_value is ", options_.clip_value, " and last_skip ", options_.last_skip, "; allowed: finite numbers of at least 0");
  buffers_ = std::make_unique<detail::KeptBuffers>(task_);
  const auto device = optimizer_.parameters()[0].value.device();
  forensics_ = std::make_unique<detail::OverflowForensics>(
      task_, precision_, optimizer_, options_, *buffers_,
      [device, bring = options_.bring](const Batch& batch) { return lies_on(batch, device) || !bring ? batch : bring(batch); });
  if (options_.graphs)
    graph_ = std::make_unique<detail::WindowGraph>(device_of(optimizer_.parameters()[0].value.device()), task_, optimizer_.parameters());
}

TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

Batch TrainStep::bring(const Batch& batch, int micro_batch) {
  if (!options_.bring || lies_on(batch, optimizer_.parameters()[0].value.device())) return batch;
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

template <class Fn>
decltype(auto) TrainStep::run_phase(Phase phase, Fn&& fn) {
  phase_ = phase;
  return observers_.run(phase, attempts_, 0, std::forward<Fn>(fn));
}

void TrainStep::set_attempts(int64_t attempts) {
  attempts_ = attempts;
  forensics_->set_taken_one(attempts > 0);
}

void TrainStep::begin_window(const std::vector<Batch>& window, double full_weight) {
  check(!window.empty(), ErrorKind::Usage, "TrainStep", "a window needs at least one batch");
  check(full_weight >= 0 && std::isfinite(full_weight), ErrorKind::Usage, "TrainStep", "full_weight is ", full_weight,
        "; it must be positive, or 0 to take it from the first batch");
  phase_ = Phase::Transfer;
  micro_batch_ = 0;
  start_kept_ = false;
  optimizer_.zero_grad();  // what the host, or a window that threw, left behind
  task_.parameters().zero_grad();
  if (precision_.may_skip() || forensics_->watches() || options_.keep_start) buffers_->keep();
  start_kept_ = true;
  forensics_->begin();
  precision_.begin_step();
}

StepResult TrainStep::run(const std::vector<Batch>& batches, double full_weight) {
  begin_window(batches, full_weight);
  const auto window = forward_backward(batches, full_weight);

  const at::NoGradGuard no_grad;
  const double total_weight = group_.all_reduce_sum(window.weight);
  run_phase(Phase::Reduce, [&] { reduce(); });
  const auto gate = run_phase(Phase::Unscale, [&] { return unscale(window.full_weight / total_weight); });
  forensics_->look_at_gradients(batches, window.full_weight, attempts_);
  const auto norm = run_phase(Phase::Clip, [&] { return clip(); });
  run_phase(Phase::Optimizer, [&] { update_or_skip(gate); });

  StepResult result;
  result.taken = !precision_.may_skip() || !precision_.last_step_skipped();
  if (!result.taken) buffers_->restore();
  forensics_->end(result.taken, batches, window.full_weight, attempts_);
  precision_.update(gate);
  optimizer_.zero_grad();
  if (result.taken && ema_ != nullptr) ema_->update(optimizer_.parameters(), host_decides(gate) ? StepGate{} : gate);
  ++attempts_;
  result.packed = at::cat({window.sums, norm});
  result.loss_weight = window.weight / window.full_weight;
  result.weight = window.weight;
  result.samples = window.samples;
  return result;
}

void TrainStep::reduce() {
  if (group_.world_size() == 1) return;
  for (const auto& p : optimizer_.parameters())
    if (auto grad = p.value.grad(); grad.defined()) group_.all_reduce_sum(grad);
}

StepGate TrainStep::unscale(double factor) {
  auto gate = precision_.unscale_and_check(factor);
  if (gate.found_inf.defined()) group_.all_reduce_max(gate.found_inf);
  return gate;
}

void TrainStep::update_or_skip(const StepGate& gate) {
  if (!host_decides(gate))
    optimizer_.step(gate);
  else if (!precision_.last_step_skipped())
    optimizer_.step({.inv_scale = gate.inv_scale, .found_inf = {}});
  precision_.after_step(gate);
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
  if (start_kept_) buffers_->restore();
}

}  // namespace npu_train
