// At the end of a run: the share of the communication between ranks that backward passes have hidden.
#pragma once

#include "npu_train/train/callback.hpp"

namespace npu_train {

class OverlapReport final : public Callback {
 public:
  static constexpr double kTarget = 0.7;
  void on_fit_start(TrainLoop& loop) override;
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  // One line of the log, over all ranks. Waits for them.
  void on_fit_end(TrainLoop& loop, const RunResult& result) override;

 private:
  double windows_ = 0, communication_ = 0, hidden_ = 0, bytes_ = 0, between_ = 0;
  double end_ = 0;  // of the last window that was counted
};

}  // namespace npu_train
