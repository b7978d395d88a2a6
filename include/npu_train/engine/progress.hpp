/// Progress for people: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "npu_train/train/callback.hpp"
#include "npu_train/train/meter.hpp"

namespace npu_train {

/// Epoch, step, ETA, loss now (average), the task's metrics, lr, img/s, share of waiting for data, grad_norm, loss_scale, skipped, memory.
class Progress final : public Callback {
 public:
  /// `write` receives text: whole lines, or with `bar` also lines that begin with a carriage return and replace the one before.
  Progress(std::function<void(const std::string&)> write, bool bar, int64_t every_n_steps);

  void on_epoch_start(TrainLoop& loop, int64_t epoch) override;
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override;
  void on_checkpoint(TrainLoop& loop, const std::string& path) override;

 private:
  std::string line(TrainLoop& loop, const StepReport& report) const;
  void end_bar();

  std::function<void(const std::string&)> write_;
  bool bar_;
  int64_t every_;
  int64_t in_epoch_ = 0;     // windows of the epoch, those before a resume included
  int64_t steps_timed_ = 0;  // of which timed here
  int64_t skipped_ = 0;      // of the steps reported here
  double seconds_ = 0;
  double data_wait_ = 0;
  int64_t samples_ = 0;
  double last_bar_ = -1;
  bool bar_open_ = false;
  MetricMeter average_;
};

}  // namespace npu_train
