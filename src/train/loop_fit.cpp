#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include "loop_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/train/monitors.hpp"

namespace npu_train {
namespace {
constexpr int64_t kMaxRollbacks = 2;
}

void TrainLoop::check_monitors() const { detail::check_monitors(parts_.task->metric_names(), checkpoint_, early_); }

bool TrainLoop::validates() const {
  return parts_.val_loader != nullptr && options_.check_val_every_n_epoch > 0 && options_.limit_val_batches != 0;
}

RunResult TrainLoop::fit() {
  return translated("Trainer::fit", [&] {
    stop_.reset();
    attempts_at_start_ = step_->attempts();
    started_ = parts_.clock->now();
    struct Answered {
      std::atomic<bool>& stop;
      ~Answered() { stop = false; }
    } answered{*parts_.stop};  // a request is for this fit, however it ends
    check(!early_.enabled || early_.monitor.starts_with("train/") || validates(), ErrorKind::Usage, "early_stopping.monitor", "'",
          early_.monitor, "' is measured on validation data, and this run does not validate");
    call_back([&](Callback& c) { c.on_fit_start(*this); });
    sanity_check();
    RunResult result;
    while (!limits_reached()) {
      try {
        const auto before = batches_seen_;
        const bool fresh = batch_in_epoch_ == 0;
        const auto report = train_epoch();
        if (!report) break;
        check(!fresh || batches_seen_ > before, ErrorKind::Data, "Trainer::fit", "the training data gave no batch in epoch ", report->epoch,
              "; hint: look at trainer.limit_train_batches and data.drop_last");
        if (checkpoint_.every_n_epochs > 0 && epoch_ % checkpoint_.every_n_epochs == 0) begin_checkpoint();
        result.history.push_back(*report);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::Diverged || !roll_back(e)) throw;
      }
    }
    if (epoch_open_ && *stop_ != StopReason::Requested && validates()) {
      if (const auto val = validate_weights(/*stoppable=*/true))
        note_validation(*val);
      else
        stop_ = StopReason::Requested;
    }
    finish_checkpoint();
    if (saved_at_ != batches_seen_ || (saved_without_score_ && !std::isnan(last_score_))) save_checkpoint();
    result.reason = stop_.value_or(StopReason::MaxEpochs);
    result.global_step = global_step_;
    result.attempts = step_->attempts();
    result.skipped_steps = skipped_;
    result.batches_seen = batches_seen_;
    result.final_val = last_val_;
    result.best_score = best_score_;
    if (parts_.store != nullptr) {
      result.last_checkpoint = parts_.store->last();
      result.best_checkpoint = parts_.store->best();
    }
    call_back([&](Callback& c) { c.on_fit_end(*this, result); });
    return result;
  });
}

void TrainLoop::sanity_check() {
  if (!validates() || options_.num_sanity_val_steps == 0 || options_.overfit_batches > 0 || global_step_ > 0) return;
  run_validation(*parts_.val_loader, options_.num_sanity_val_steps, Pass::Sanity, /*stoppable=*/true);
}

bool TrainLoop::step_limit_reached() {
  enum : unsigned { kRequested = 1, kTimeIsUp = 2 };  // what ranks may see differently
  const bool steps_done = options_.max_steps >= 0 && global_step_ >= options_.max_steps;
  unsigned wanted = 0;
  if (parts_.stop->load(std::memory_order_relaxed))
    wanted = kRequested;
  else if (!steps_done && options_.max_time >= 0 && parts_.clock->now() - started_ >= options_.max_time)
    wanted = kTimeIsUp;
  const auto decided = parts_.strategy->decide(wanted);
  if ((decided & kRequested) != 0)
    stop_ = StopReason::Requested;
  else if (steps_done)
    stop_ = StopReason::MaxSteps;
  else if ((decided & kTimeIsUp) != 0)
    stop_ = StopReason::MaxTime;
  return stop_.has_value();
}

bool TrainLoop::limits_reached() {
  if (step_limit_reached()) return true;
  if (options_.fast_dev_run && step_->attempts() > attempts_at_start_)
    stop_ = StopReason::FastDevRun;
  else if (options_.max_epochs >= 0 && epoch_ >= options_.max_epochs)
    stop_ = StopReason::MaxEpochs;
  else if (early_.enabled && without_improvement_ >= early_.patience)
    stop_ = StopReason::EarlyStopping;
  return stop_.has_value();
}

void TrainLoop::note_validation(const Scalars& val) {
  const auto value_of = [&](const std::string& monitor) {
    const auto nan = std::nan("");
    if (monitor.starts_with("train/")) return scalar_or(sums_->metrics.value(), monitor.substr(6), nan);
    return scalar_or(val, monitor.starts_with("val/") ? monitor.substr(4) : monitor, nan);
  };
  const auto better = [](double value, double best, bool larger, double delta) {
    return !std::isnan(value) && (std::isnan(best) || (larger ? value > best + delta : value < best - delta));
  };
  last_score_ = value_of(checkpoint_.monitor);
  if (better(last_score_, best_score_, larger_is_better(checkpoint_.monitor, checkpoint_.mode), 0)) best_score_ = last_score_;
  if (!early_.enabled || (val.empty() && !early_.monitor.starts_with("train/"))) return;
  const auto watched = value_of(early_.monitor);
  if (better(watched, early_best_, larger_is_better(early_.monitor, early_.mode), early_.min_delta)) {
    early_best_ = watched;
    without_improvement_ = 0;
  } else {
    ++without_improvement_;
  }
}

bool TrainLoop::parameters_finite() const {
  const at::NoGradGuard no_grad;
  for (const auto& p : parts_.optimizer->parameters())
    if (!at::isfinite(p.value.detach().sum()).item<bool>() && !at::isfinite(p.value.detach()).all().item<bool>()) return false;
  return true;
}

std::string TrainLoop::save_checkpoint() {
  if (parts_.store == nullptr || options_.fast_dev_run) return "";
  finish_checkpoint();
  return observers_.run(Phase::Checkpoint, step_->attempts(), 0, [&] {
    check_finite();
    const bool writes = parts_.strategy->is_main();
    const auto path = writes ? parts_.store->save(state(), meta(), parts_.config) : std::string();
    parts_.strategy->barrier();  // the file is there for every rank
    note_saved();
    if (writes) call_back([&](Callback& c) { c.on_checkpoint(*this, path); });
    return path;
  });
}

void TrainLoop::begin_checkpoint() {
  if (!checkpoint_.async) {
    save_checkpoint();
    return;
  }
  if (parts_.store == nullptr || options_.fast_dev_run) return;
  finish_checkpoint();
  observers_.run(Phase::Checkpoint, step_->attempts(), 0, [&] {
    check_finite();
    if (parts_.strategy->is_main()) parts_.store->save_later(state(), meta(), parts_.config);
    note_saved();
  });
}

void TrainLoop::finish_checkpoint(bool wait) {
  if (parts_.store == nullptr) return;
  std::string path;
  try {
    path = parts_.store->finish(wait);
  } catch (...) {
    saved_at_ = -1;  // what was noted as saved is not
    throw;
  }
  if (!path.empty()) call_back([&](Callback& c) { c.on_checkpoint(*this, path); });
}

void TrainLoop::check_finite() {
  if (!parameters_finite())
    diverged("a parameter is not finite", "lower the learning rate, clip gradients, or check the data; the last good checkpoint is whole");
}

void TrainLoop::note_saved() {
  saved_at_ = batches_seen_;
  saved_without_score_ = std::isnan(last_score_);
}

void TrainLoop::check_divergence(const StepReport& report, bool at_floor) {
  const double loss = scalar_or(report.metrics, "loss", 0);
  const auto at_step = c10::str("step ", report.attempt, " (epoch ", report.epoch, ")");
  if (!report.taken) {
    if (at_floor && skip_streak_ >= options_.max_consecutive_skips)
      diverged(c10::str("gradients overflowed ", skip_streak_, " times in a row and the loss scale ",
                        parts_.precision->has_floor() ? "sits at its floor of " : "stays at ", report.loss_scale,
                        parts_.precision->has_floor() ? "" : " (grad_scaler.dynamic: false)", ", at ", at_step,
                        overflow_cause_.empty() ? "" : "; cause: " + overflow_cause_),
               overflow_remedy_.empty() ? "lower the learning rate, clip gradients, or train in bf16-mixed or 32-true" : overflow_remedy_);
    return;
  }
  if (!std::isfinite(loss))
    diverged(c10::str("the loss is ", loss, " at ", at_step),
             "lower the learning rate, add warm-up or gradient_clip_val, and check the data for non-finite values");
}

void TrainLoop::diverged(const std::string& cause, const std::string& remedy) {
  std::string where;
  const bool rolls_back = options_.on_divergence == "rollback" && rollbacks_ < kMaxRollbacks;
  if (parts_.store != nullptr && parts_.strategy->is_main() && !(rolls_back && !parts_.store->newest_valid().empty())) {
    try {
      where = parts_.store->save_diverged(state(), meta(), parts_.config);
    } catch (const Error& e) {
      log_warning("the broken state cannot be kept: ", e.what());
    }
  }
  throw Error(ErrorKind::Diverged, "Trainer", "training diverged: " + cause + (where.empty() ? "" : "; the broken state is in " + where),
              remedy);
}

bool TrainLoop::roll_back(const Error& cause) {
  if (options_.on_divergence != "rollback" || parts_.store == nullptr || rollbacks_ >= kMaxRollbacks) return false;
  const auto path = parts_.store->newest_valid();
  if (path.empty()) return false;
  const auto rollbacks = rollbacks_ + 1;
  const auto factor = lr_factor_ * 0.1;
  log_warning(cause.what(), "; rolling back to ", path, " with the learning rate times ", factor);
  pending_.reset();
  load_state(load_checkpoint(path));
  rollbacks_ = rollbacks;
  lr_factor_ = factor;
  return true;
}

}  // namespace npu_train
