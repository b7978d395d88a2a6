// Sums over the steps of an epoch; a resumed epoch continues with the sums from its checkpoint.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/train/metric.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// FLOP per sample, and measured FLOP/s of matrix products, as in LoopParts; 0: not reported.
struct EpochFlops {
  double per_sample = 0, of_products = 0;
};

class EpochSums final : public Stateful {
 public:
  explicit EpochSums(const Task& task, EpochFlops flops = {}) : task_(task), flops_(flops) {}

  void clear();
  // Adds a step. A skipped one counts for the time, but not for the averages.
  void add(const StepReport& report);
  // Weight of the losses of all steps, including skipped ones.
  double weight() const { return weight_; }
  // Returns the averages of the training metrics.
  Scalars train() const;
  // Fills in the members of `report` that follow from the sums.
  void describe(EpochReport& report) const;

  State state() const override;
  void load_state(const State& state) override;
  // Warns of metrics that only the saved state of an unfinished epoch has, and of those that only this run has.
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
