// The limits at which a training ends: those of the configuration, or a request.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "npu_train/core/clock.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train::detail {

class StopLimits {
 public:
  // `options` is read in each call, because a program may change max_steps. request_stop() sets `stop`.
  StopLimits(const TrainerOptions& options, std::shared_ptr<const Clock> clock, std::atomic<bool>& stop, Strategy& strategy)
      : options_(options), clock_(std::move(clock)), stop_(stop), strategy_(strategy) {}

  void begin_fit(int64_t attempts);
  // In a program that does not call fit(), trainer.max_time counts from the first epoch.
  void begin_epoch();
  void clear() { reason_.reset(); }

  // Called after a step. Keeps the first reason that applies, in this order: request, max_steps, max_time. Ranks also agree on
  // `is_writing`.
  bool reached_in_epoch(int64_t global_step, bool is_writing = false);
  // Returns the result of the last agreement: whether some rank was still writing its part of a checkpoint before the newest step.
  bool some_rank_is_writing() const { return some_rank_is_writing_; }
  // Called between epochs: also checks fast_dev_run, max_epochs and early stopping, in this order.
  bool reached(int64_t global_step, int64_t epoch, int64_t attempts, bool early_stopping_is_due);
  bool requested() const { return reason_ == StopReason::Requested; }
  // Records that a request has ended the work, and clears the request.
  void end_by_request();
  void end_by_early_stopping() { reason_ = StopReason::EarlyStopping; }
  void drop_request();
  std::optional<StopReason> reason() const { return reason_; }

 private:
  const TrainerOptions& options_;
  std::shared_ptr<const Clock> clock_;
  std::atomic<bool>& stop_;
  Strategy& strategy_;
  int64_t attempts_at_start_ = 0;
  double started_ = 0;
  std::optional<StopReason> reason_;
  bool some_rank_is_writing_ = false;
};

}  // namespace npu_train::detail
