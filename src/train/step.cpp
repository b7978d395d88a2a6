#include "npu_train/train/step.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/portable_random.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/optim/clip.hpp"
#include "train/kept_buffers.hpp"
#include "train/missing_buffers.hpp"
#include "train/overflow_forensics.hpp"
#include "train/running_statistics.hpp"
#include "train/window_graph.hpp"

namespace npu_train {

namespace {

bool lies_on(const Batch& batch, const at::Device& device) {
  const auto& fields = batch.fields();
  return std::all_of(fields.begin(), fields.end(), [&](const auto& field) { return field.second.device() == device; });
}

}  // namespace

TrainStep::TrainStep(Task& task, Precision& precision, Optimizer& optimizer, Ema* ema, Strategy& strategy, const Observers& observers,
                     StepOptions options)
    : task_(task),
      parameters_(task.parameters()),
      precision_(precision),
      optimizer_(optimizer),
      ema_(ema),
      strategy_(strategy),
      observers_(observers),
      options_(options),
      may_skip_(precision.may_skip()) {
  check(options_.clip_value >= 0 && std::isfinite(options_.clip_value) && options_.last_skip >= 0, ErrorKind::Usage, "TrainStep",
        "clip_value is ", options_.clip_value, " and last_skip ", options_.last_skip, "; allowed: finite numbers of at least 0");
  buffers_ = std::make_unique<detail::KeptBuffers>(task_);
  statistics_ = std::make_unique<detail::RunningStatistics>(task_, strategy_, options_.sync_batchnorm);
  const auto& computed = on_device(strategy_, optimizer_.parameters());
  const auto device = computed[0].value.device();
  forensics_ = std::make_unique<detail::OverflowForensics>(
      task_, precision_, optimizer_, strategy_, options_, may_skip_, *buffers_,
      [device, bring = options_.bring](const Batch& batch) { return lies_on(batch, device) || !bring ? batch : bring(batch); });
  if (options_.graphs && strategy_.capturable()) graph_ = std::make_unique<detail::WindowGraph>(device_of(device), task_, computed);
}

TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

Batch TrainStep::bring(const Batch& batch, int micro_batch) {
  if (!options_.bring || lies_on(batch, on_device(strategy_, optimizer_.parameters())[0].value.device())) return batch;
  phase_ = Phase::Transfer;
  return observers_.run(Phase::Transfer, attempts_, micro_batch, [&] { return options_.bring(batch); });
}

void TrainStep::accumulate(const Batch& given, int micro_batch, detail::WindowSums& window, const at::Tensor& scale) {
  at::Tensor loss;
  StepOutput output;
  micro_batch_ = micro_batch;
  const PortableRandom::MicroBatch draws("training", attempts_, strategy_.micro_batch_number(micro_batch));
  const auto batch = bring(given, micro_batch);
  observers_.show_batch(batch, attempts_, micro_batch);
  phase_ = Phase::Forward;
  observers_.run(Phase::Forward, attempts_, micro_batch, [&] {
    strategy_.begin_forward(true);
    const auto scope = precision_.forward_scope();
    const auto context = statistics_->context(precision_.cast_input(batch), draws.key());
    const auto forward = [&] { output = translated("Task", ErrorKind::Usage, [&] { return task_.training_step(context); }); };
    statistics_->collect([&] {
      if (std::exchange(buffers_checked_, true)) return forward();
      detail::warn_of_missing_buffers(task_, forward);
    });
  });
  check_output(output, "TrainStep");
  observers_.show_loss(output.loss, attempts_, micro_batch);
  if (window.full_weight == 0) {
    const auto sum = strategy_.sum(output.weight * static_cast<double>(window.micro_batches));
    window.full_weight = sum > 0 ? sum : 1;
  }
  loss = share_of_window(output, window.full_weight);
  phase_ = Phase::Backward;
  statistics_->begin_backward(output.weight > 0);
  if (output.weight > 0)
    observers_.run(Phase::Backward, attempts_, micro_batch, [&] {
      strategy_.backward(scale.defined() ? loss * scale : precision_.scale_loss(loss), micro_batch + 1 == window.micro_batches);
      precision_.collect_gradients();
    });
  end_micro_batch();

  const at::NoGradGuard no_grad;
  const auto metrics = checked_metric_sums(task_, output, batch);
  auto sums = output.weight > 0 ? loss.detach().to(at::kFloat).reshape({1}) : at::zeros({1}, loss.options().dtype(at::kFloat));
  if (metrics.defined()) sums = at::cat({sums, metrics});
  window.sums = window.sums.defined() ? window.sums.add_(sums) : sums;
  window.weight += output.weight;
  window.samples += static_cast<double>(batch.size);
}

// If passes wait for other ranks, all ranks are in the same micro-batch.
void TrainStep::end_micro_batch() {
  if (!statistics_->waits()) return;
  statistics_->end_micro_batch();
  strategy_.end_micro_batch();
}

// Takes part in the window of other ranks.
void TrainStep::take_part(detail::WindowSums& window) {
  check(window.full_weight > 0 || !statistics_->waits(), ErrorKind::Usage, "TrainStep",
        "with sync_batchnorm, or a task that compares samples across ranks, a window without a batch on this rank needs the weight of a "
        "full window; hint: pass full_weight");
  if (window.full_weight == 0) window.full_weight = strategy_.sum(0);
  window.sums = at::zeros({1 + 2 * static_cast<int64_t>(task_.metric_names().size())},
                          on_device(strategy_, optimizer_.parameters())[0].value.options().dtype(at::kFloat).requires_grad(false));
}

detail::WindowSums TrainStep::forward_backward(const std::vector<Batch>& batches, double full_weight) {
  const auto eagerly = [this, full_weight](const std::vector<Batch>& window, const at::Tensor& scale) {
    detail::WindowSums sums{.micro_batches = static_cast<int64_t>(window.size()), .full_weight = full_weight, .sums = {}};
    for (size_t k = 0; k < window.size(); ++k) accumulate(window[k], static_cast<int>(k), sums, scale);
    if (window.empty()) take_part(sums);
    for (auto k = sums.micro_batches; k < statistics_->rounds(); ++k) end_micro_batch();
    return sums;
  };
  // observers see the operators and phases of micro-batches; a replay has neither
  detail::WindowSums sums;
  if (graph_ != nullptr && observers_.empty() && graph_->takes(batches, full_weight) &&
      graph_->run(
          batches, precision_.scale(),
          [&](const auto& window, const at::Tensor& scale) { return eagerly(window, may_skip_ ? scale : at::Tensor()); }, sums))
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
  check(full_weight >= 0 && std::isfinite(full_weight), ErrorKind::Usage, "TrainStep", "full_weight is ", full_weight,
        "; it must be positive, or 0 to take it from the first batch");
  phase_ = Phase::Transfer;
  micro_batch_ = 0;
  start_kept_ = false;
  optimizer_.zero_grad();  // gradients that the host, or a window that threw, has left
  parameters_.zero_grad();
  if (may_skip_ || forensics_->watches() || options_.keep_start) buffers_->keep();
  start_kept_ = true;
  statistics_->begin_window(static_cast<int64_t>(window.size()));
  forensics_->begin();
  precision_.begin_step();
  strategy_.begin_window(static_cast<int64_t>(window.size()));
  strategy_.set_gradient_scale(precision_.scale());
}

StepResult TrainStep::run(const std::vector<Batch>& batches, double full_weight) {
  begin_window(batches, full_weight);
  const auto window = forward_backward(batches, full_weight);  // each loss times its weight / R

  const at::NoGradGuard no_grad;
  const WindowWeight own{window.weight, window.samples, static_cast<double>(batches.size())};
  const auto total = run_phase(Phase::Reduce, [&] {
    auto all = strategy_.finish_gradients(own);
    statistics_->apply();
    return all;
  });
  check(total.micro_batches > 0, ErrorKind::Usage, "TrainStep", "a window needs at least one batch, on any rank");
  if (total.loss == 0) return leave_out(window, total);
  auto decision = run_phase(Phase::Unscale, [&] { return precision_.unscale_and_check(window.full_weight / total.loss); });  // times R / W
  forensics_->look_at_gradients(batches, window.full_weight, attempts_);
  StepAgreement all{.found_inf = decision.found_inf, .squares = {}, .sums = window.sums};
  at::Tensor norm;
  run_phase(Phase::Clip, [&] {
    auto squares = own_squares();
    all.squares = squares.parts;
    strategy_.agree(all);
    squares.parts = all.squares;
    if (squares.parts.defined()) norm = norm_of(squares);
    clip(norm);
  });
  run_phase(Phase::Optimizer, [&] {
    decision = precision_.optimizer_decision({.inv_scale = decision.inv_scale, .found_inf = all.found_inf});
    optimizer_.step(decision);  // changes no bit if found_inf is set
    strategy_.finish_step();    // all masters have arrived before they are rounded
    precision_.after_step(decision);
  });

  const bool taken = !precision_.last_step_skipped();
  if (!taken) buffers_->restore();
  forensics_->end(taken, batches, window.full_weight, attempts_);
  precision_.update(decision);
  optimizer_.zero_grad();
  if (taken && ema_ != nullptr) ema_->update(optimizer_.parameters(), decision);
  ++attempts_;
  return {.packed = at::cat({all.sums, reported(norm, all.sums)}),
          .loss_weight = total.loss / window.full_weight,
          .weight = total.loss,
          .samples = total.samples,
          .micro_batches = static_cast<int64_t>(total.micro_batches),
          .taken = taken};
}

// Ends a window in which nothing counts, which has neither a mean loss nor a gradient: parameters, loss scale and averages are unchanged.
// Ranks agree as in a skipped step, so that the errors of compressed gradients are unchanged, too.
StepResult TrainStep::leave_out(const detail::WindowSums& window, const WindowWeight& total) {
  StepAgreement all{.found_inf = at::ones({}, window.sums.options()), .squares = {}, .sums = window.sums};
  run_phase(Phase::Clip, [&] { strategy_.agree(all); });
  run_phase(Phase::Optimizer, [&] { strategy_.finish_step(); });
  if (may_skip_) buffers_->restore();
  optimizer_.zero_grad();
  ++attempts_;
  return {.packed = at::cat({all.sums, reported({}, all.sums)}),
          .weight = 0,
          .samples = total.samples,
          .micro_batches = static_cast<int64_t>(total.micro_batches),
          .taken = false,
          .empty = true};
}

// Returns the norm for the report, on the device of `sums`; 0 if there is none.
at::Tensor TrainStep::reported(const at::Tensor& norm, const at::Tensor& sums) {
  if (norm.defined()) return norm.to(sums.device(), at::kFloat).reshape({1});
  if (!no_norm_.defined()) no_norm_ = at::zeros({1}, sums.options());
  return no_norm_;
}

// Returns undefined parts if nothing is clipped by norm.
SquaredNorm TrainStep::own_squares() const {
  return options_.clip_value > 0 && options_.clip_by_norm ? squared_grad_norm(optimizer_.parameters()) : SquaredNorm{};
}

void TrainStep::clip(const at::Tensor& norm) {
  if (norm.defined())
    clip_grads_with_norm_(optimizer_.parameters(), options_.clip_value, norm);
  else if (options_.clip_value > 0)
    clip_grad_value_(optimizer_.parameters(), options_.clip_value);
}

void TrainStep::undo_window() {
  const at::NoGradGuard no_grad;
  optimizer_.zero_grad();
  on_device(strategy_, optimizer_.parameters()).zero_grad();
  parameters_.zero_grad();
  if (start_kept_) buffers_->restore();
}

}  // namespace npu_train
