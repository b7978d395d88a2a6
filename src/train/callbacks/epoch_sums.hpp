// Sums over the steps of an epoch so far; a resumed epoch continues with those of its checkpoint.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/train/meter.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// What the speed of an epoch is compared with, as in LoopParts; 0: not compared.
struct EpochFlops {
  double per_sample = 0, of_products = 0;
};

class EpochSums final : public Stateful {
 public:
  explicit EpochSums(const Task& task, EpochFlops flops = {}) : task_(task), flops_(flops) {}

  void clear();
  // A skipped step counts for the time and not for the averages.
  void add(const StepReport& report);
  // Of the losses of all steps, skipped ones included.
  double weight() const { return weight_; }
  // Averages of the training metrics.
  Scalars train() const;
  // What it knows of the epoch.
  void describe(EpochReport& report) const;

  State state() const override;
  void load_state(const State& state) override;
  // Warns of metrics that only the state of an epoch under way has, or only this run.
  void report_other_names(const State& state) const;

 private:
  const Task& task_;
  EpochFlops flops_;
  MetricMeter metrics_;
  int64_t samples_ = 0;
  double weight_ = 0;
  int64_t skipped_ = 0;
  double seconds_ = 0;
  double data_wait_ = 0;
};

}  // namespace npu_train::detail
