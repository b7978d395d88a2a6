#include "npu_train/train/loop.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <limits>

#include "loop_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device_graph.hpp"
#include "npu_train/device/portable_random.hpp"
#include "npu_train/device/transfer.hpp"

namespace npu_train {

TrainLoop::TrainLoop(LoopParts parts, TrainerOptions options, CheckpointOptions checkpoint, EarlyStoppingOptions early_stopping)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      checkpoint_(std::move(checkpoint)),
      early_(std::move(early_stopping)),
      best_score_(std::numeric_limits<double>::quiet_NaN()),
      early_best_(std::numeric_limits<double>::quiet_NaN()),
      last_score_(std::numeric_limits<double>::quiet_NaN()),
      sums_(std::make_unique<EpochSums>()) {
  bind<TrainerOptions>(to_node(options_), "trainer");  // the checks that a file's sections get
  bind<CheckpointOptions>(to_node(checkpoint_), "checkpoint");
  bind<EarlyStoppingOptions>(to_node(early_), "early_stopping");
  check(options_.on_oom != "retry" || parts_.strategy == nullptr || parts_.strategy->world_size() == 1, ErrorKind::Usage, "trainer.on_oom",
        "retry works for one rank: with several, the others would wait for the one that is out of memory; hint: trainer.on_oom=stop and a "
        "smaller data.batch_size");
  std::function<Batch(const Batch&)> bring;
  if (options_.on_oom == "retry") bring = [this](const Batch& batch) { return to_device(batch, parts_.device); };
  step_ = std::make_unique<TrainStep>(*parts_.task, *parts_.precision, *parts_.optimizer, parts_.ema, *parts_.strategy, observers_,
                                      StepOptions{.clip_value = options_.gradient_clip_val,
                                                  .clip_by_norm = options_.gradient_clip_algorithm == "norm",
                                                  .on_overflow = [this](const OverflowReport& report) { note_overflow(report); },
                                                  .detect_anomaly = options_.detect_anomaly,
                                                  .keep_start = options_.on_oom == "retry",
                                                  .bring = bring,
                                                  .graphs = captures_graphs(),
                                                  .last_skip = options_.max_consecutive_skips});
  if (checkpoint_.monitor == "auto") {
    const auto names = parts_.task->metric_names();
    checkpoint_.monitor = (validates() ? "val/" : "train/") + (names.empty() ? "loss" : names.front());
  }
  check_monitors();
  parts_.task->set_training(true);
}

TrainLoop::~TrainLoop() = default;

// Why not is told where graphs were asked for, and where the device has them.
bool TrainLoop::captures_graphs() const {
  const bool asked = options_.cuda_graphs == "true";
  if (options_.cuda_graphs == "false" || (!asked && parts_.device.kind != "cuda")) return false;
  auto why_not = DeviceGraph::why_not(parts_.device);
  if (why_not.empty() && !asked && !parts_.task->capturable()) why_not = "the task does not say that it can be captured (Task::capturable)";
  if (why_not.empty() && !parts_.strategy->capturable()) why_not = "the backward waits for other ranks";
  if (why_not.empty() && PortableRandom::is_on()) why_not = "rng: portable draws on the host";
  if (why_not.empty() && options_.on_oom == "retry") why_not = "trainer.on_oom: retry cuts windows into other shapes";
  if (why_not.empty() && options_.gradient_checkpointing != "none")
    why_not = "trainer.gradient_checkpointing keeps the host in the backward";
  if (why_not.empty()) return true;
  if (asked)
    log_warning("trainer.cuda_graphs: off: ", why_not);
  else
    log_info("trainer.cuda_graphs: off: ", why_not);
  return false;
}

std::optional<int64_t> TrainLoop::windows_per_epoch() const {
  auto batches = parts_.train_loader->batches_per_epoch();
  if (options_.overfit_batches > 0) batches = std::min(batches.value_or(options_.overfit_batches), options_.overfit_batches);
  if (options_.fast_dev_run) batches = 1;
  if (options_.limit_train_batches >= 0) batches = std::min(batches.value_or(options_.limit_train_batches), options_.limit_train_batches);
  if (!batches) return std::nullopt;
  return (*batches + options_.accumulate_grad_batches - 1) / options_.accumulate_grad_batches;
}

void TrainLoop::begin_epoch() {
  if (batch_in_epoch_ == 0) *sums_ = {};
  if (started_ == 0) started_ = parts_.clock->now();
  if (options_.overfit_batches > 0)
    fill_overfit();
  else
    parts_.train_loader->begin_epoch(epoch_, batch_in_epoch_);
  epoch_open_ = true;
  call_back([&](Callback& c) { c.on_epoch_start(*this, epoch_); });
  warn_of_untrained();
}

void TrainLoop::fill_overfit() {
  if (!overfit_.empty()) return;
  parts_.train_loader->begin_epoch(0);
  while (static_cast<int64_t>(overfit_.size()) < options_.overfit_batches) {
    auto batch = parts_.train_loader->next();
    if (!batch) break;
    overfit_.push_back(std::move(*batch));
  }
}

std::optional<Batch> TrainLoop::next_batch() {
  const auto limit = options_.fast_dev_run ? 1 : options_.limit_train_batches;
  if (limit >= 0 && batch_in_epoch_ >= limit) return std::nullopt;
  if (options_.overfit_batches == 0) return parts_.train_loader->next();
  if (batch_in_epoch_ >= static_cast<int64_t>(overfit_.size())) return std::nullopt;
  return overfit_[static_cast<size_t>(batch_in_epoch_)];
}

std::vector<Batch> TrainLoop::next_window(double& data_wait) {
  std::vector<Batch> window;
  for (int64_t k = 0; k < options_.accumulate_grad_batches; ++k) {
    const auto start = parts_.clock->now();
    auto batch = observers_.run(Phase::DataWait, step_->attempts(), static_cast<int>(k), [&] { return next_batch(); });
    data_wait += parts_.clock->now() - start;
    if (!batch) break;
    ++batch_in_epoch_;
    window.push_back(std::move(*batch));
    copy_newest(window, options_.accumulate_grad_batches);
  }
  return window;
}

void TrainLoop::apply_lr() {
  const auto t = static_cast<double>(parts_.schedule->by_epoch() ? epoch_ : global_step_);
  if (lr_set_ && parts_.optimizer->lr() != *lr_set_ && !std::exchange(lr_warned_, true))
    log_warning("the optimizer's learning rate was set to ", parts_.optimizer->lr(),
                ", but the schedule sets it at every step; hint: TrainLoop::set_lr_factor() holds");
  parts_.optimizer->set_lr(parts_.base_lr * parts_.schedule->factor(t) * lr_factor_);
  lr_set_ = parts_.optimizer->lr();
}

void TrainLoop::set_lr_factor(double factor) {
  check(factor >= 0 && std::isfinite(factor), ErrorKind::Usage, "TrainLoop::set_lr_factor", "the factor is ", factor,
        "; allowed: a finite number of at least 0");
  lr_factor_ = factor;
}

void TrainLoop::note_overflow(const OverflowReport& report) {
  overflow_cause_ = report.source.str();
  overflow_remedy_ = join(report.advice, "; or ");
  log_warning("overflow explained (attempt ", report.attempt, "): ", overflow_cause_,
              report.advice.empty() ? "" : "; hint: " + report.advice.front());
  call_back([&](Callback& c) { c.on_overflow(*this, report); });
}

StepResult TrainLoop::step(std::vector<Batch>& window) {
  apply_lr();
  last_score_ = std::numeric_limits<double>::quiet_NaN();  // of weights that no longer are
  auto result = run_window(window);
  batches_seen_ += static_cast<int64_t>(window.size());
  if (result.taken) {
    ++global_step_;
    skip_streak_ = 0;
    overflow_cause_.clear();
    overflow_remedy_.clear();
  } else {
    ++skipped_;
    ++skip_streak_;
  }
  return result;
}

StepReport TrainLoop::read(const Pending& pending) const {
  auto report = pending.report;
  const auto host = pending.numbers.get();
  const float* p = host.const_data_ptr<float>();
  report.metrics.emplace_back("loss", p[0] / pending.result.loss_weight);
  const auto names = parts_.task->metric_names();
  for (size_t i = 0; i < names.size(); ++i) report.metrics.emplace_back(names[i], p[1 + i] / pending.result.samples);
  report.grad_norm = p[host.numel() - 1];
  return report;
}

StepReport TrainLoop::train_step(const std::vector<Batch>& batches) {
  return translated("Trainer::train_step", [&] {
    const auto start = parts_.clock->now();
    std::vector<Batch> window;
    for (const auto& b : batches) {
      window.push_back(b);
      copy_newest(window, static_cast<int64_t>(batches.size()));
    }
    Pending pending;
    pending.report.attempt = step_->attempts();
    pending.take(step(window));
    pending.report.global_step = global_step_;
    pending.report.epoch = epoch_;
    pending.report.batches_seen = batches_seen_;
    pending.report.taken = pending.result.taken;
    pending.report.loss_scale = parts_.precision->scale();
    pending.report.lr = parts_.optimizer->lr();
    pending.report.samples = static_cast<int64_t>(pending.result.samples);
    pending.report.seconds = parts_.clock->now() - start;
    return read(pending);
  });
}

void TrainLoop::set_epoch(int64_t epoch) {
  check(epoch >= 0, ErrorKind::Usage, "Trainer::set_epoch", "the epoch is ", epoch, "; it must be at least 0");
  epoch_ = epoch;
  batch_in_epoch_ = 0;
  epoch_open_ = false;
}

void TrainLoop::finish_pending(EpochSums& sums) {
  if (!pending_) return;
  const auto pending = std::move(pending_);
  const auto report = read(*pending);
  std::vector<double> weights(report.metrics.size(), static_cast<double>(report.samples));
  weights[0] = pending->result.weight;  // of the loss, which is first
  if (report.taken) sums.metrics.add(report.metrics, weights);
  sums.samples += report.samples;
  sums.skipped += report.taken ? 0 : 1;
  sums.seconds += report.seconds;
  sums.data_wait += report.data_wait;
  call_back([&](Callback& c) { c.on_step_end(*this, report); });
  check_divergence(report, pending->at_floor);
}

std::optional<EpochReport> TrainLoop::train_epoch() {
  stop_.reset();
  if (!epoch_open_) begin_epoch();
  const auto length = windows_per_epoch();
  auto last = parts_.clock->now();
  for (;;) {
    double data_wait = 0;
    auto next = std::make_unique<Pending>();
    next->report.attempt = step_->attempts();
    auto window = next_window(data_wait);
    if (window.empty()) break;
    next->at_floor = parts_.precision->at_floor();
    next->take(step(window));
    finish_pending(*sums_);
    const auto now = parts_.clock->now();
    auto& report = next->report;
    report.global_step = global_step_;
    report.epoch = epoch_;
    report.batches_seen = batches_seen_;
    report.taken = next->result.taken;
    report.loss_scale = parts_.precision->scale();
    report.lr = parts_.optimizer->lr();
    report.samples = static_cast<int64_t>(next->result.samples);
    report.seconds = now - last;
    report.data_wait = data_wait;
    last = now;
    const bool taken = report.taken;
    pending_ = std::move(next);
    finish_checkpoint(false);
    if (!taken) finish_pending(*sums_);  // the host has read its overflow already: nothing is won by waiting

    const bool finished = length && windows_done() >= *length;
    if (step_limit_reached() && !(finished && *stop_ != StopReason::Requested)) {
      finish_pending(*sums_);
      finish_checkpoint();
      parts_.stop->store(false);  // answered
      return std::nullopt;
    }
    const auto every = checkpoint_.every_n_train_steps;
    if (every > 0 && taken && global_step_ % every == 0) {
      finish_pending(*sums_);
      begin_checkpoint();
    }
  }
  finish_pending(*sums_);
  finish_checkpoint();
  EpochReport report;
  if (end_epoch(report)) return report;
  stop_ = StopReason::Requested;
  parts_.stop->store(false);  // answered
  return std::nullopt;
}

/// False: a stop was requested during the validation. The epoch then still has its end before it, with the validation from the start.
bool TrainLoop::end_epoch(EpochReport& report) {
  report.epoch = epoch_;
  report.global_step = global_step_;
  report.train = sums_->metrics.value();
  report.lr = parts_.optimizer->lr();
  report.loss_scale = parts_.precision->scale();
  report.skipped = sums_->skipped;
  report.seconds = sums_->seconds;
  report.samples_per_second = sums_->seconds > 0 ? static_cast<double>(sums_->samples) / sums_->seconds : 0;
  report.data_wait = sums_->data_wait;
  if (validates() && (options_.fast_dev_run || (epoch_ + 1) % options_.check_val_every_n_epoch == 0)) {
    const auto start = parts_.clock->now();
    auto val = validate_weights(/*stoppable=*/true);
    if (!val) return false;
    report.val = std::move(*val);
    report.val_seconds = parts_.clock->now() - start;
  }
  report.peak_memory = static_cast<int64_t>(backend_of(parts_.device).memory(parts_.device).peak);
  note_validation(report.val);
  epoch_open_ = false;
  batch_in_epoch_ = 0;
  ++epoch_;
  call_back([&](Callback& c) { c.on_epoch_end(*this, report); });
  return true;
}

}  // namespace npu_train
