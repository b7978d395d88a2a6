#include "train/callbacks/stop_limits.hpp"

namespace npu_train::detail {

void StopLimits::begin_fit(int64_t attempts) {
  clear();
  attempts_at_start_ = attempts;
  started_ = clock_->now();
}

void StopLimits::begin_epoch() {
  if (started_ == 0) started_ = clock_->now();
}

bool StopLimits::reached_in_epoch(int64_t global_step, bool is_writing) {
  enum : unsigned { kRequested = 1, kTimeIsUp = 2, kIsWriting = 4 };  // reports of a rank; ranks agree on their union
  const bool steps_done = options_.max_steps >= 0 && global_step >= options_.max_steps;
  unsigned wanted = 0;
  if (stop_.load(std::memory_order_relaxed))
    wanted = kRequested;
  else if (!steps_done && options_.max_time >= 0 && clock_->now() - started_ >= options_.max_time)
    wanted = kTimeIsUp;
  if (is_writing) wanted |= kIsWriting;
  const auto decided = strategy_.decide(wanted);
  some_rank_is_writing_ = (decided & kIsWriting) != 0;
  if ((decided & kRequested) != 0)
    reason_ = StopReason::Requested;
  else if (steps_done)
    reason_ = StopReason::MaxSteps;
  else if ((decided & kTimeIsUp) != 0)
    reason_ = StopReason::MaxTime;
  return reason_.has_value();
}

bool StopLimits::reached(int64_t global_step, int64_t epoch, int64_t attempts, bool early_stopping_is_due) {
  if (reached_in_epoch(global_step)) return true;
  if (options_.fast_dev_run && attempts > attempts_at_start_)
    reason_ = StopReason::FastDevRun;
  else if (options_.max_epochs >= 0 && epoch >= options_.max_epochs)
    reason_ = StopReason::MaxEpochs;
  else if (early_stopping_is_due)
    reason_ = StopReason::EarlyStopping;
  return reason_.has_value();
}

void StopLimits::drop_request() {
  stop_ = false;
  strategy_.decide(0);
}

void StopLimits::end_by_request() {
  reason_ = StopReason::Requested;
  drop_request();
}

}  // namespace npu_train::detail
