// The step of an AlternatingTask: the steps of its optimizers, one after the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/train/step.hpp"

namespace npu_train::detail {

// Each optimizer has a complete TrainStep over its own parameters and loss. Its gradients are reduced, unscaled, checked and clipped
// separately, and the ranks agree on its step separately. If one optimizer skips its step, the other optimizers can still step.
class AlternatingStep final : public WindowStep {
 public:
  // All arguments are borrowed, except the options. `optimizers`: those of the task, in its order. `average`: updated by the steps of the
  // optimizer that it names (average.of); may be nullptr.
  AlternatingStep(AlternatingTask& task, const ParameterSet& parameters, const std::vector<OptimizerParts>& optimizers,
                  WeightAverage* average, const Observers& observers, const StepOptions& options);
  ~AlternatingStep() override;

  // Returns the sum of the losses, the sums of the metrics, and the norm of all gradients together. The result is marked as taken if at
  // least one optimizer has stepped and none has skipped its step because of an overflow.
  StepResult run(const std::vector<Batch>& window, double full_weight = 0) override;
  // Throws Error(Usage): optimizers before the one that failed have already stepped.
  void undo_window() override;
  Phase phase() const override;
  int micro_batch() const override;
  int64_t attempts() const override { return attempts_; }
  void set_attempts(int64_t attempts) override;

 private:
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
  const Part* current_;  // the part whose step began last
  int64_t attempts_ = 0;
};

}  // namespace npu_train::detail
