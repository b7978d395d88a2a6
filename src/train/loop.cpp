#include "npu_train/train/loop.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/train/monitors.hpp"
#include "train/loop_jobs.hpp"

namespace npu_train {

template <class Fn>
void TrainLoop::call_back(Fn&& fn) {
  if (jobs_->callbacks.empty()) return;
  observers_.run(Phase::Callbacks, step_->attempts(), 0, [&] { jobs_->callbacks.call(parts_.strategy->ranks().is_main(), fn); });
}

void TrainLoop::note_overflow(const OverflowReport& report) {
  jobs_->divergence.note_overflow(report);
  call_back([&](Callback& c) { c.on_overflow(*this, report); });
}

void TrainLoop::note_checkpoint(const std::string& path) {
  call_back([&](Callback& c) { c.on_checkpoint(*this, path); });
}

namespace {

// Checks a name that the program has chosen; returns the step to which its value belongs.
int64_t logged_step(const std::string& name, std::optional<int64_t> step, int64_t now) {
  const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == std::string::npos;
  check(!name.empty() && name.size() <= 100 && plain && name != "epoch" && name != "step" && name != "phase", ErrorKind::Usage, "log",
        "the name '", name,
        "' is not valid; allowed: 1 to 100 letters, digits, '_', '-', '.' and '/', but not epoch, step and phase, "
        "which are columns of metrics.csv");
  for (const char* phase : {"train/", "val/", "epoch/"})
    check(!name.starts_with(phase), ErrorKind::Usage, "log", "the name '", name, "' begins with ", phase,
          ", as metrics of the run do; hint: another beginning, such as my/");
  const auto out = step.value_or(now);
  check(out >= 0, ErrorKind::Usage, "log", "'", name, "' is logged for step ", out, "; allowed: at least 0");
  return out;
}

void check_logged_image(const std::string& name, const at::Tensor& image) {
  check(image.defined(), ErrorKind::Usage, "log_image", "'", name, "' is an undefined tensor");
  const int64_t channels = image.dim() == 2 ? 1 : image.dim() == 3 ? image.size(0) : 0;
  const bool good = (channels == 1 || channels == 3 || channels == 4) && image.numel() > 0 &&
                    (image.scalar_type() == at::kByte || image.is_floating_point());
  check(good, ErrorKind::Usage, "log_image", "'", name, "' is ", image.scalar_type(), " ", image.sizes(),
        "; allowed: uint8 or floating point, [channels, height, width] with 1, 3 or 4 channels, or [height, width]");
}

}  // namespace

void TrainLoop::log(const std::string& name, double value, std::optional<int64_t> step) {
  const auto of = logged_step(name, step, at_.global_step);
  call_back([&](Callback& c) { c.on_log(*this, name, value, of); });
}

void TrainLoop::log_text(const std::string& name, const std::string& text, std::optional<int64_t> step) {
  const auto of = logged_step(name, step, at_.global_step);
  call_back([&](Callback& c) { c.on_log_text(*this, name, text, of); });
}

void TrainLoop::log_image(const std::string& name, const at::Tensor& image, std::optional<int64_t> step) {
  const auto of = logged_step(name, step, at_.global_step);
  check_logged_image(name, image);
  call_back([&](Callback& c) { c.on_log_image(*this, name, image, of); });
}

void TrainLoop::log_histogram(const std::string& name, const at::Tensor& values, std::optional<int64_t> step) {
  const auto of = logged_step(name, step, at_.global_step);
  check(values.defined() && values.numel() > 0, ErrorKind::Usage, "log_histogram", "'", name, "' has no elements");
  call_back([&](Callback& c) { c.on_log_histogram(*this, name, values, of); });
}

RunResult TrainLoop::fit() {
  return translated("Trainer::fit", [&] {
    jobs_->limits.begin_fit(step_->attempts());
    struct End {
      detail::StopLimits& limits;
      ~End() { limits.drop_request(); }
    } end{jobs_->limits};  // a request applies only to this fit(), however it ends
    detail::check_early_stopping(jobs_->early.options(), options_, parts_.val_loader != nullptr);
    const auto of_rate = jobs_->rate.monitor();
    check(of_rate.empty() || of_rate.starts_with("train/") || validates(), ErrorKind::Usage, "lr_scheduler.monitor", "'", of_rate,
          "' is measured on validation data, and this run does not validate");
    if (validates()) jobs_->windows.check_validations();
    call_back([&](Callback& c) { c.on_fit_start(*this); });
    sanity_check();
    RunResult result;
    while (!jobs_->limits.reached(at_.global_step, at_.epoch, step_->attempts(), jobs_->early.is_due())) {
      try {
        const auto before = step_->attempts();
        const bool fresh = at_.batch_in_epoch == 0;
        const auto report = train_epoch();
        if (!report) break;
        check(!fresh || step_->attempts() > before, ErrorKind::Data, "Trainer::fit", "the training data gave no batch in epoch ",
              report->epoch, "; hint: npu_tool data check counts the samples; look also at trainer.limit_train_batches and data.drop_last");
        check(!fresh || jobs_->sums.weight() > 0, ErrorKind::Data, "Trainer::fit", "no target of epoch ", report->epoch,
              " counts, so there is nothing to train on; hint: look at the targets, at task.ignore_index, and at prompts as long as the "
              "texts");
        if (checkpoint_.every_n_epochs > 0 && at_.epoch % checkpoint_.every_n_epochs == 0) begin_checkpoint();
        result.history.push_back(*report);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::Diverged || !roll_back(e)) throw;
      }
    }
    if (epoch_open_ && !jobs_->limits.requested()) take_statistics(/*stoppable=*/true);
    if (epoch_open_ && !jobs_->limits.requested() && validates() && at_.validated_batch != at_.batch_in_epoch)
      validate_at_stop(/*stoppable=*/true);
    jobs_->writer.finish(/*wait=*/true);
    if (!jobs_->writer.has(step_->attempts(), jobs_->ranking.score())) save_checkpoint();
    if (!jobs_->limits.requested()) average_checkpoints();
    result.reason = jobs_->limits.reason().value_or(StopReason::MaxEpochs);
    result.global_step = at_.global_step;
    result.attempts = step_->attempts();
    result.skipped_steps = at_.skipped;
    result.batches_seen = at_.batches_seen;
    result.final_val = last_val_;
    result.best_score = jobs_->ranking.best_so_far();
    if (parts_.store != nullptr) {
      result.last_checkpoint = parts_.store->last();
      result.best_checkpoint = parts_.store->best();
    }
    call_back([&](Callback& c) { c.on_fit_end(*this, result); });
    return result;
  });
}

void TrainLoop::begin_epoch() {
  if (at_.batch_in_epoch == 0) jobs_->sums.clear();
  jobs_->limits.begin_epoch();
  jobs_->windows.begin_epoch(at_.epoch, at_.batch_in_epoch);
  jobs_->callbacks.check_states();
  epoch_open_ = true;
  const bool resumed = at_.batch_in_epoch > 0;
  call_back([&](Callback& c) { resumed ? c.on_epoch_resume(*this, at_.epoch) : c.on_epoch_start(*this, at_.epoch); });
  jobs_->trained.warn_of_untrained();
}

StepResult TrainLoop::step(std::vector<Batch>& window) {
  jobs_->rate.set(at_.epoch, at_.global_step);
  jobs_->ranking.forget();
  auto result = jobs_->memory.run(window);
  at_.batches_seen += result.micro_batches;
  if (result.taken) {
    ++at_.global_step;
    jobs_->averaging.note_step(at_.epoch, at_.global_step);
  } else {
    ++at_.skipped;
  }
  if (!result.empty) jobs_->divergence.note_step(result.taken);
  return result;
}

/// Whether a loss scale cannot fall further.
bool TrainLoop::at_floor() const {
  return std::any_of(parts_.optimizers.begin(), parts_.optimizers.end(), [](const auto& one) { return one.precision->at_floor(); });
}

/// Fills in the values that the host knows after a step.
void TrainLoop::describe(StepReport& report, const StepResult& result) const {
  report.global_step = at_.global_step;
  report.epoch = at_.epoch;
  report.batches_seen = at_.batches_seen;
  report.taken = result.taken;
  report.empty = result.empty;
  report.loss_scale = parts_.loss_scale();
  report.lr = parts_.optimizer->lr();
  report.samples = static_cast<int64_t>(result.samples);
  report.weight = result.weight;
}

StepReport TrainLoop::train_step(const std::vector<Batch>& batches) {
  return translated("Trainer::train_step", [&] {
    const auto start = parts_.clock->now();
    std::vector<Batch> window;
    for (const auto& b : batches) {
      window.push_back(b);
      jobs_->memory.copy_newest(window, static_cast<int64_t>(batches.size()));
    }
    detail::PendingStep pending;
    pending.report.attempt = step_->attempts();
    pending.take(step(window));
    describe(pending.report, pending.result);
    pending.report.seconds = parts_.clock->now() - start;
    auto report = pending.read(parts_.task->metric_names());
    detail::add_metrics_of_loss(*parts_.task, report);
    return report;
  });
}

void TrainLoop::finish_pending() {
  if (!jobs_->pending) return;
  const auto pending = std::move(jobs_->pending);
  auto report = pending->read(parts_.task->metric_names());
  jobs_->sums.add(report);
  detail::add_metrics_of_loss(*parts_.task, report);
  call_back([&](Callback& c) { c.on_step_end(*this, report); });
  if (const auto found = jobs_->divergence.check(report, pending->at_floor, parts_.precision->has_floor())) jobs_->diverged(*found);
}

std::optional<EpochReport> TrainLoop::train_epoch() {
  auto& limits = jobs_->limits;
  limits.clear();
  if (!epoch_open_) begin_epoch();
  const auto stopped = [&]() -> std::optional<EpochReport> {
    finish_pending();
    jobs_->writer.finish(/*wait=*/true);
    limits.drop_request();
    return std::nullopt;
  };
  if (!validate_inside_epoch()) return stopped();  // a validation may be due if the run was stopped before it
  auto last = parts_.clock->now();
  for (;;) {
    double data_wait = 0;
    auto next = std::make_unique<detail::PendingStep>();
    next->report.attempt = step_->attempts();
    auto window = jobs_->windows.next(at_.batch_in_epoch, data_wait);
    if (!window) break;
    next->at_floor = at_floor();
    next->take(step(*window));
    finish_pending();
    const auto now = parts_.clock->now();
    describe(next->report, next->result);
    next->report.seconds = now - std::exchange(last, now);
    next->report.data_wait = data_wait;
    const bool taken = next->report.taken;
    jobs_->pending = std::move(next);
    jobs_->writer.finish(/*wait=*/false);
    if (!taken) finish_pending();  // the host has already read this step's overflow: waiting longer gains nothing

    const bool finished = jobs_->windows.finished(at_.batch_in_epoch);
    const bool limit = limits.reached_in_epoch(at_.global_step, jobs_->writer.is_writing_part());
    jobs_->writer.note_parts(limits.some_rank_is_writing());
    if (limit && limits.requested()) return stopped();
    const auto before_validation = parts_.clock->now();
    if (!validate_inside_epoch()) return stopped();
    last += parts_.clock->now() - before_validation;
    if (limit && parts_.strategy->ranks().any(!finished)) return stopped();
    const auto every = checkpoint_.every_n_train_steps;
    if (every > 0 && taken && at_.global_step % every == 0) {
      finish_pending();
      begin_checkpoint();
    }
  }
  finish_pending();
  jobs_->writer.finish(/*wait=*/true);
  EpochReport report;
  if (end_epoch(report)) return report;
  limits.end_by_request();
  return std::nullopt;
}

/// Returns false if a stop was requested during the validation, or during the pass before it that measures running statistics. The epoch
/// has then not ended, and both start again later.
bool TrainLoop::end_epoch(EpochReport& report) {
  report.epoch = at_.epoch;
  report.global_step = at_.global_step;
  report.lr = parts_.optimizer->lr();
  report.loss_scale = parts_.loss_scale();
  jobs_->sums.describe(report);
  jobs_->averaging.note_epoch(at_.epoch, at_.global_step);
  if (!take_statistics(/*stoppable=*/true)) return false;
  jobs_->averaging.statistics_taken();
  // For data of unknown length, a validation by interval may coincide with the end of the epoch.
  const bool validated = at_.validated_batch == at_.batch_in_epoch;
  if (validates_epoch() && !validated) {
    const auto start = parts_.clock->now();
    auto val = validate_weights(/*stoppable=*/true);
    if (!val) return false;
    report.val = std::move(*val);
    report.val_seconds = parts_.clock->now() - start;
  }
  report.peak_memory = static_cast<int64_t>(backend_of(parts_.device).memory(parts_.device).peak);
  note(report.train, report.val);
  if (validated) report.val = last_val_;
  epoch_open_ = false;
  at_.batch_in_epoch = 0;
  at_.validated_batch = -1;
  ++at_.epoch;
  call_back([&](Callback& c) { c.on_epoch_end(*this, report); });
  return true;
}

/// Runs the validation of trainer.val_check_interval if one is due at this position. Returns false if the run stops: a request came during
/// the validation, or early stopping applies after it.
bool TrainLoop::validate_inside_epoch() {
  const bool due = validates_epoch() && at_.validated_batch != at_.batch_in_epoch && jobs_->windows.validation_is_due(at_.batch_in_epoch);
  if (!due) return true;
  finish_pending();
  const auto val = validate_weights(/*stoppable=*/true);
  if (!val) {
    jobs_->limits.end_by_request();
    return false;
  }
  at_.validated_batch = at_.batch_in_epoch;
  note({}, *val);
  if (checkpoint_.every_n_epochs > 0) begin_checkpoint();
  if (!jobs_->early.is_due()) return true;
  jobs_->limits.end_by_early_stopping();
  return false;
}

void TrainLoop::sanity_check() {
  if (!validates() || options_.num_sanity_val_steps == 0 || options_.overfit_batches > 0 || at_.global_step > 0) return;
  run_validation(*parts_.val_loader, options_.num_sanity_val_steps, Pass::Sanity, /*stoppable=*/true);
}

std::optional<Scalars> TrainLoop::run_validation(Loader& loader, int64_t limit, Pass pass, bool stoppable) {
  return translated("Trainer::validate", [&] {
    detail::Evaluation::Options options{
        .limit = limit, .pass = pass, .attempt = step_->attempts(), .stoppable = stoppable, .train_loader = parts_.train_loader};
    if (&loader == parts_.val_loader) options.overfit = jobs_->windows.overfit();
    if (pass == Pass::Validation)
      options.on_batch = [&](int64_t done, std::optional<int64_t> total) {
        jobs_->callbacks.call(parts_.strategy->ranks().is_main(), [&](Callback& c) { c.on_validation_batch(*this, done, total); });
      };
    return jobs_->evaluation.run(loader, options);
  });
}

/// Validates the current weights; changes no state except final_val.
std::optional<Scalars> TrainLoop::measure_weights(bool stoppable) {
  check(parts_.val_loader != nullptr, ErrorKind::Usage, "Trainer::validate", "there is no validation data");
  const auto limit = options_.fast_dev_run ? 1 : options_.limit_val_batches;
  auto metrics = observers_.run(Phase::Validation, step_->attempts(), 0,
                                [&] { return run_validation(*parts_.val_loader, limit, Pass::Validation, stoppable); });
  if (!metrics) return metrics;
  last_val_ = *metrics;
  if (const auto loss = scalar_or(last_val_, "loss", 0); !std::isfinite(loss))
    log_warning("the validation loss is ", loss, " after step ", at_.global_step,
                ": its checkpoint gets no score and is never the best one; hint: look for values that are not finite in the validation "
                "data, or for weights that diverge");
  return metrics;
}

std::optional<Scalars> TrainLoop::validate_weights(bool stoppable) {
  auto metrics = measure_weights(stoppable);
  if (!metrics) return metrics;
  at_.validated_step = at_.global_step;
  call_back([&](Callback& c) { c.on_validation_end(*this, last_val_); });
  return metrics;
}

/// Gives the checkpoint at a stop a score. Changes no other state, because a run that is not stopped here makes no such validation.
void TrainLoop::validate_at_stop(bool stoppable) {
  const auto val = measure_weights(stoppable);
  if (!val) return jobs_->limits.end_by_request();
  jobs_->ranking.score_only(jobs_->sums.train(), *val);
  call_back([&](Callback& c) { c.on_stop_validation(*this, *val); });
}

/// `train` is empty inside an epoch, and `val` in an epoch without a validation. A second validation of the same averages of weights does
/// not count as a lack of improvement.
void TrainLoop::note(const Scalars& train, const Scalars& val) {
  const auto judged = jobs_->averaging.is_judged() ? Scalars() : val;
  if (!val.empty()) jobs_->averaging.judge();
  jobs_->ranking.note(train, val);
  jobs_->early.note(train, judged);
  jobs_->rate.note(train, judged);
}

}  // namespace npu_train
