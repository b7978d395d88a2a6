/// Learning-rate schedules: pure functions of time, without state, except for plateau, which also follows a metric.
///
/// The learning rate is the optimizer's `lr` times `factor(t)`. t counts steps taken or epochs finished, as `interval` selects, and all
/// lengths have that unit. With `interval: epoch` and `{name: step, step_size: 30, gamma: 0.1}`, epochs 0 to 29 train at lr, and the next
/// ones at lr / 10.
///
/// During the warm-up (warmup_epochs or warmup_steps, depending on the interval) the factor rises linearly from warmup_start_factor to 1.
/// Decaying curves (exponential, cosine, cosine_restarts, linear, polynomial, wsd) begin after the warm-up and by default end with the run;
/// milestones (step, multistep) are counted from the start of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/core/config_table.hpp"
#include "npu_train/core/registry.hpp"

namespace npu_train {

struct PlateauOptions;

/// A curve over time, and the unit of that time.
class LrSchedule {
 public:
  LrSchedule(std::function<double(double)> factor, bool by_epoch, double warmup = 0, std::shared_ptr<const PlateauOptions> plateau = {})
      : factor_(std::move(factor)), by_epoch_(by_epoch), warmup_(warmup), plateau_(std::move(plateau)) {}
  /// Returns the factor on the learning rate after `t` units, t >= 0; after the end of a curve, its last value.
  double factor(double t) const { return factor_(t); }
  /// True if t counts finished epochs, false if it counts steps taken.
  bool by_epoch() const { return by_epoch_; }
  /// Length of the warm-up in units of t.
  double warmup() const { return warmup_; }
  /// Returns a schedule that equals this one until t = start. From there, its factor moves to `end_factor` within `length` units, as half a
  /// cosine or on a straight line, and then stays there (as in torch.optim.swa_utils.SWALR).
  LrSchedule then(double start, double length, double end_factor, bool cosine) const;
  /// Returns the rule by which the loop lowers the rate further (Plateau), or nullptr. This rule is the only part of a schedule that
  /// depends on more than time.
  const PlateauOptions* plateau() const { return plateau_.get(); }

 private:
  std::function<double(double)> factor_;
  bool by_epoch_;
  double warmup_;
  std::shared_ptr<const PlateauOptions> plateau_;
};

/// Curves of the factor. Except for one_cycle() and warmup(), they start at 1 for t = 0. Lengths are in units of t; `min_factor` is min_lr
/// / lr.
namespace schedule {
double step(double t, double step_size, double gamma);                             ///< gamma^floor(t / step_size)
double multistep(double t, const std::vector<int64_t>& milestones, double gamma);  ///< gamma^(number of milestones reached)
double cosine(double t, double length, double min_factor);                         ///< SGDR (Loshchilov and Hutter 2017), one cycle
/// Cosines of the lengths T_0, T_0 * T_mult, T_0 * T_mult^2 ..., each from gamma^(cycles before it) to min_factor (SGDR). With gamma 1 it
/// is like torch's CosineAnnealingWarmRestarts, with another gamma like timm's CosineLRScheduler.
double cosine_restarts(double t, double T_0, double T_mult, double min_factor, double gamma = 1);
/// Returns 1 until t = stable, and then falls to min_factor within `decay` (Hu et al., MiniCPM, 2024), as `shape` says: linear | cosine |
/// 1-sqrt.
double stable_decay(double t, double stable, double decay, double min_factor, const std::string& shape);
double linear(double t, double length, double end_factor);
double polynomial(double t, double length, double power, double min_factor);
/// Rises from 1 / div_factor to 1 over the share pct_start of the length, then falls to 1 / (div_factor * final_div_factor), both as half
/// cosines (Smith and Topin 2019; like torch's OneCycleLR). The factor is relative to the highest rate.
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
struct ExponentialOptions : ScheduleOptions {
  double gamma = 0.95;  ///< factor per unit of time after the warm-up
  double min_lr = 0;
  static const ConfigTable<ExponentialOptions>& config_table();
};
struct CosineRestartsOptions : ScheduleOptions {
  int64_t T_0 = 10;        ///< length of the first cycle, which begins after the warm-up
  int64_t T_mult = 1;      ///< length of each cycle, relative to the cycle before
  double cycle_decay = 1;  ///< rate at the start of each cycle, relative to the cycle before
  double min_lr = 0;
  static const ConfigTable<CosineRestartsOptions>& config_table();
};
/// Warm-up, stable phase, decay. The rate in the stable phase does not depend on the length of the run.
struct WsdOptions : ScheduleOptions {
  int64_t stable_iters = 0;  ///< length of the stable phase; 0: the rest of the run
  int64_t decay_iters = 0;   ///< length of the decay; 0: a tenth of the run
  double min_lr = 0;
  std::string decay = "linear";  ///< linear | cosine | 1-sqrt: shape of the decay
  static const ConfigTable<WsdOptions>& config_table();
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
/// A constant rate that falls whenever a metric no longer improves. Lengths count validations, or epochs for a metric of the training data.
struct PlateauOptions : ScheduleOptions {
  std::string monitor = "val/loss";
  std::string mode = "auto";           ///< min | max | auto
  double factor = 0.1;                 ///< factor on the rate at each reduction
  int64_t patience = 10;               ///< validations without improvement that are tolerated
  double threshold = 1e-4;             ///< least change that counts as improvement
  std::string threshold_mode = "rel";  ///< rel: share of the best value | abs
  int64_t cooldown = 0;                ///< number of validations after a reduction that do not count against `patience`
  double min_lr = 0;
  double eps = 1e-8;  ///< a reduction that lowers the rate by no more than this is omitted
  static const ConfigTable<PlateauOptions>& config_table();
};

/// The rule of torch.optim.lr_scheduler.ReduceLROnPlateau, as a factor on the rate.
class Plateau final : public Stateful {
 public:
  Plateau(PlateauOptions options, bool larger_is_better) : options_(std::move(options)), larger_(larger_is_better) {}
  /// Takes the next value of the metric. `base_lr` is the rate at factor 1. NaN never counts as an improvement.
  void note(double value, double base_lr);
  double factor() const { return factor_; }
  State state() const override;
  void load_state(const State& state) override;

 private:
  bool improves(double value) const;

  PlateauOptions options_;
  bool larger_;
  double factor_ = 1;
  std::optional<double> best_;
  int64_t bad_ = 0, cooldown_ = 0;
};

/// Options of the one-cycle schedule, which includes its own warm-up.
struct OneCycleOptions {
  std::string interval = "step";
  double max_lr = 0;        ///< the highest rate; 0: the optimizer's lr
  int64_t total_iters = 0;  ///< 0: length of the run
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  static const ConfigTable<OneCycleOptions>& config_table();
};

/// Schedules by name. `make` throws Error(Usage) if a required length is given neither by the options nor by the run.
using ScheduleRegistry = Registry<std::unique_ptr<LrSchedule>, const ScheduleContext&>;

/// Adds constant, step, multistep, exponential, cosine, cosine_restarts, linear, polynomial, wsd, one_cycle and plateau.
void add_builtin_schedules(ScheduleRegistry& registry);

}  // namespace npu_train
