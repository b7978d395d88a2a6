// The optimizer's learning rate: the rate of the schedule, times a factor that callbacks set and rollbacks lower, and that of a plateau.
#pragma once

#include <optional>

#include "npu_train/base/state.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/optim/schedule.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train::detail {

class LearningRate final : public Stateful {
 public:
  LearningRate(const LrSchedule* schedule, double base_lr, Optimizer& optimizer);

  // Called before each step. A rate that other code has set in the meantime is overwritten, with one warning.
  void set(int64_t epoch, int64_t global_step);
  // Takes the averages of an epoch or a validation, which may be empty, for a schedule that follows a metric.
  void note(const Scalars& train, const Scalars& val);
  // The metric of such a schedule; "" otherwise.
  std::string monitor() const { return plateau_ ? schedule_->plateau()->monitor : ""; }
  // Error(Usage) unless the factor is finite and at least 0.
  void set_factor(double factor);
  double factor() const { return factor_; }

  State state() const override;
  void load_state(const State& state) override;

 private:
  const LrSchedule* schedule_;
  double base_lr_;
  Optimizer& optimizer_;
  double factor_ = 1;
  std::optional<Plateau> plateau_;
  std::optional<double> next_;  // place in the schedule after the newest step
  std::optional<double> last_;  // the rate that was set last
  bool warned_ = false;
};

}  // namespace npu_train::detail
