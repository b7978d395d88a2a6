// The optimizer's learning rate: the product of the schedule's rate, a factor that callbacks set and rollbacks lower, and the factor of a
// plateau.
#pragma once

#include <optional>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/optim/schedule.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/step.hpp"

namespace npu_train::detail {

class LearningRate final : public Stateful {
 public:
  // `optimizers`: one or more, borrowed, each with its own rate at factor 1. The saved state is that of the first optimizer.
  LearningRate(const LrSchedule* schedule, std::vector<OptimizerParts> optimizers);

  // Called before each step. Overwrites a rate that other code has set in the meantime, with one warning.
  void set(int64_t epoch, int64_t global_step);
  // Takes the averages of an epoch or a validation for a schedule that follows a metric. They may be empty.
  void note(const Scalars& train, const Scalars& val);
  // Returns the metric that the schedule follows; "" if it follows none.
  std::string monitor() const { return plateau_ ? schedule_->plateau()->monitor : ""; }
  // Sets the factor of callbacks. Error(Usage) unless it is finite and at least 0.
  void set_factor(double factor);
  double factor() const { return factor_; }

  State state() const override;
  void load_state(const State& state) override;

 private:
  const LrSchedule* schedule_;
  std::vector<OptimizerParts> optimizers_;
  double base_lr_;  // base rate of the first optimizer
  double factor_ = 1;
  std::optional<Plateau> plateau_;
  std::optional<double> next_;  // position in the schedule after the newest step: epochs or steps
  std::optional<double> last_;  // the rate that was set last
  bool warned_ = false;
};

}  // namespace npu_train::detail
