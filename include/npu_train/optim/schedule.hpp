/// Learning-rate schedules as pure functions of time, without state.
///
/// The learning rate is the optimizer's `lr` times `factor(t)`. t counts steps taken or epochs finished, as `interval` selects, and all
/// lengths have that unit: with `interval: epoch` and `{name: step, step_size: 30, gamma: 0.1}`, epochs 0 to 29 train at lr, and the next
/// ones at lr / 10.
///
/// During the warm-up (warmup_epochs or warmup_steps, depending on the interval) the factor rises linearly from warmup_start_factor to 1.
/// Decaying curves (cosine, linear, polynomial) begin after the warm-up and by default end with the run; milestones (step, multistep) are
/// counted from the start of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/core/registry.hpp"

namespace npu_train {

/// A curve over time, and the unit of that time.
class LrSchedule {
 public:
  LrSchedule(std::function<double(double)> factor, bool by_epoch, double warmup = 0)
      : factor_(std::move(factor)), by_epoch_(by_epoch), warmup_(warmup) {}
  /// Returns the factor of the learning rate after `t` units, t >= 0; after the end of a curve its last value.
  double factor(double t) const { return factor_(t); }
  /// True if t counts finished epochs, false if it counts steps taken.
  bool by_epoch() const { return by_epoch_; }
  /// Length of the warm-up in units of t.
  double warmup() const { return warmup_; }

 private:
  std::function<double(double)> factor_;
  bool by_epoch_;
  double warmup_;
};

/// Curves that start at 1 for t = 0. Lengths are in units of t; `min_factor` is min_lr / lr.
namespace schedule {
double step(double t, double step_size, double gamma);                             ///< gamma^floor(t / step_size)
double multistep(double t, const std::vector<int64_t>& milestones, double gamma);  ///< gamma^(milestones reached)
double cosine(double t, double length, double min_factor);                         ///< SGDR (Loshchilov and Hutter 2017), one cycle
double linear(double t, double length, double end_factor);
double polynomial(double t, double length, double power, double min_factor);
/// Rises from 1 / div_factor to 1 over pct_start of the length, then falls to 1 / (div_factor * final_div_factor), both as half cosines
/// (Smith and Topin 2019; like torch's OneCycleLR). The factor is relative to the highest rate.
double one_cycle(double t, double length, double pct_start, double div_factor, double final_div_factor);
/// Rises linearly from `start_factor` at t = 0 to 1 at t = length; 1 if length is 0.
double warmup(double t, double length, double start_factor);
}  // namespace schedule

/// Facts about the run that a schedule may need in addition to its options.
struct ScheduleContext {
  int64_t total_epochs = -1;  ///< epochs of the run; -1: unknown
  int64_t total_steps = -1;   ///< optimizer steps of the run; -1: unknown
  double base_lr = 0;         ///< the optimizer's lr
};

/// Options that all schedules with a separate warm-up share.
struct ScheduleOptions {
  std::string interval = "epoch";  ///< epoch | step: unit of all lengths
  int64_t warmup_epochs = 0;       ///< used with interval: epoch
  int64_t warmup_steps = 0;        ///< used with interval: step
  double warmup_start_factor = 0.01;
};

struct ConstantOptions : ScheduleOptions {
  static const ConfigTable<ConstantOptions>& config_table();
};
struct StepLrOptions : ScheduleOptions {
  int64_t step_size = 30;
  double gamma = 0.1;
  static const ConfigTable<StepLrOptions>& config_table();
};
struct MultistepOptions : ScheduleOptions {
  std::vector<int64_t> milestones;
  double gamma = 0.1;
  static const ConfigTable<MultistepOptions>& config_table();
};
struct CosineOptions : ScheduleOptions {
  int64_t T_max = 0;  ///< length of the decay without the warm-up; 0: the rest of the run
  double min_lr = 0;
  static const ConfigTable<CosineOptions>& config_table();
};
struct LinearOptions : ScheduleOptions {
  int64_t total_iters = 0;  ///< length of the decay; 0: the rest of the run
  double min_lr = 0;
  static const ConfigTable<LinearOptions>& config_table();
};
struct PolynomialOptions : ScheduleOptions {
  int64_t total_iters = 0;
  double power = 1;
  double min_lr = 0;
  static const ConfigTable<PolynomialOptions>& config_table();
};
/// Includes its own warm-up.
struct OneCycleOptions {
  std::string interval = "step";
  double max_lr = 0;        ///< the highest rate; 0: the optimizer's lr
  int64_t total_iters = 0;  ///< 0: length of the run
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  static const ConfigTable<OneCycleOptions>& config_table();
};

/// Schedules by name. `make` throws Error(Usage) if neither the options nor the run provide a required length.
using ScheduleRegistry = Registry<std::unique_ptr<LrSchedule>, const ScheduleContext&>;

/// constant, step, multistep, cosine, linear, polynomial, one_cycle.
void add_builtin_schedules(ScheduleRegistry& registry);

}  // namespace npu_train
