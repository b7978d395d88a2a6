// Reports at the end of a run what share of the communication overlapped with backward passes.
#pragma once

#include "npu_train/train/callback.hpp"

namespace npu_train {

class OverlapReport final : public Callback {
 public:
  static constexpr double kTarget = 0.7;
  void on_fit_start(TrainLoop& loop) override;
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  // Logs one line for all ranks. Every rank must call it.
  void on_fit_end(TrainLoop& loop, const RunResult& result) override;

 private:
  double windows_ = 0, communication_ = 0, hidden_ = 0, bytes_ = 0, between_ = 0;
  double end_ = 0;  // end of the last counted window
};

}  // namespace npu_train
