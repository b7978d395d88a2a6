// The step of an AlternatingTask: those of its optimizers, one after the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/train/step.hpp"

namespace npu_train::detail {

// Each optimizer has a complete TrainStep over its own parameters and loss, with the contract of any other: its gradients are reduced,
// unscaled, checked and clipped, and the ranks agree, for it alone. If one skips, the others may step.
class AlternatingStep final : public WindowStep {
 public:
  // All arguments are borrowed, except the options. `optimizers`: those of the task, in its order. `average`: updated by the steps of the
  // optimizer that it names (average.of); may be nullptr.
  AlternatingStep(AlternatingTask& task, const ParameterSet& parameters, const std::vector<OptimizerParts>& optimizers,
                  WeightAverage* average, const Observers& observers, const StepOptions& options);
  ~AlternatingStep() override;

  // The result has the sum of the losses, the sums of the metrics, and the norm of all gradients together. It is taken if no optimizer has
  // skipped.
  StepResult run(const std::vector<Batch>& window, double full_weight = 0) override;
  // Error(Usage): an optimizer before the one that failed has stepped.
  void undo_window() override;
  Phase phase() const override;
  int micro_batch() const override;
  int64_t attempts() const override { return attempts_; }
  void set_attempts(int64_t attempts) override;

 private:
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
  const Part* current_;  // the one that began last
  int64_t attempts_ = 0;
};

}  // namespace npu_train::detail
