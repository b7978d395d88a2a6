#include "npu_train/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train {

namespace schedule {
namespace {

// Progress from 0 to 1.
double share(double t, double length) { return length > 0 ? std::clamp(t / length, 0.0, 1.0) : 1.0; }

// Half a cosine wave from `from` to `to`.
double half_cosine(double from, double to, double at) { return to + (from - to) * (1 + std::cos(std::numbers::pi * at)) / 2; }

}  // namespace

double step(double t, double step_size, double gamma) { return std::pow(gamma, std::floor(t / step_size)); }

double multistep(double t, const std::vector<int64_t>& milestones, double gamma) {
  const auto reached = std::count_if(milestones.begin(), milestones.end(), [&](int64_t m) { return t >= static_cast<double>(m); });
  return std::pow(gamma, static_cast<double>(reached));
}

double cosine(double t, double length, double min_factor) { return half_cosine(1, min_factor, share(t, length)); }

double cosine_restarts(double t, double T_0, double T_mult, double min_factor, double gamma) {
  double peak = 1, length = T_0;
  if (T_mult == 1) {
    peak = std::pow(gamma, std::floor(t / T_0));
    t = std::fmod(t, T_0);
  }
  for (; t >= length; length *= T_mult, peak *= gamma) t -= length;
  return half_cosine(peak, min_factor, share(t, length));
}

double stable_decay(double t, double stable, double decay, double min_factor, const std::string& shape) {
  const double at = share(std::max(t - stable, 0.0), decay);
  if (shape == "cosine") return half_cosine(1, min_factor, at);
  return min_factor + (1 - min_factor) * (1 - (shape == "1-sqrt" ? std::sqrt(at) : at));
}

double linear(double t, double length, double end_factor) { return 1 + (end_factor - 1) * share(t, length); }

double polynomial(double t, double length, double power, double min_factor) {
  return min_factor + (1 - min_factor) * std::pow(1 - share(t, length), power);
}

double one_cycle(double t, double length, double pct_start, double div_factor, double final_div_factor) {
  const double peak = pct_start * length - 1;  // the first step has number 0
  const double start = 1 / div_factor;
  if (t <= peak) return half_cosine(start, 1, share(t, peak));
  return half_cosine(1, start / final_div_factor, share(t - peak, length - 1 - peak));
}

double warmup(double t, double length, double start_factor) {
  return length > 0 && t < length ? start_factor + (1 - start_factor) * t / length : 1;
}

}  // namespace schedule

LrSchedule LrSchedule::then(double start, double length, double end_factor, bool cosine) const {
  auto factor = [before = factor_, start, length, end_factor, cosine](double t) {
    if (t < start) return before(t);
    const double at = schedule::share(t - start, length), from = before(start);
    return cosine ? schedule::half_cosine(from, end_factor, at) : from + (end_factor - from) * at;
  };
  return {std::move(factor), by_epoch_, warmup_, plateau_};
}

namespace {

constexpr const char* kSchedule = "lr_scheduler";

// The casts are needed because a member of a base class does not match `V T::*`.
template <class T>
ConfigTable<T> schedule_table(const std::string& name) {
  return ConfigTable<T>("lr_scheduler " + name)
      .field("interval", static_cast<std::string T::*>(&T::interval), "unit of all lengths here", one_of({"epoch", "step"}))
      .field("warmup_epochs", static_cast<int64_t T::*>(&T::warmup_epochs), "length of the warm-up; with interval: epoch", at_least(0))
      .field("warmup_steps", static_cast<int64_t T::*>(&T::warmup_steps), "length of the warm-up; with interval: step", at_least(0))
      .field("warmup_start_factor", static_cast<double T::*>(&T::warmup_start_factor), "what the rate is multiplied by at the very start",
             between(0, 1));
}

bool by_epoch(const std::string& interval) {
  check(interval == "epoch" || interval == "step", ErrorKind::Usage, kSchedule, "interval is '", interval, "'; it must be epoch or step");
  return interval == "epoch";
}

double warmup_length(const ScheduleOptions& o) {
  const bool epochs = by_epoch(o.interval);
  check((epochs ? o.warmup_steps : o.warmup_epochs) == 0, ErrorKind::Usage, kSchedule, epochs ? "warmup_steps" : "warmup_epochs",
        " is given, but interval is ", o.interval, "; all lengths are in that unit: give ", epochs ? "warmup_epochs" : "warmup_steps",
        ", or change the interval");
  const auto length = epochs ? o.warmup_epochs : o.warmup_steps;
  check(length >= 0 && o.warmup_start_factor >= 0 && o.warmup_start_factor <= 1, ErrorKind::Usage, kSchedule, "warm-up length ", length,
        ", warmup_start_factor ", o.warmup_start_factor, "; the length must be at least 0, the factor between 0 and 1");
  return static_cast<double>(length);
}

double run_length(bool epochs, const ScheduleContext& context, const char* field) {
  const auto total = epochs ? context.total_epochs : context.total_steps;
  const bool endless = !epochs && context.total_epochs > 0;  // the run is limited in epochs, whose length in steps is unknown
  check(total > 0, ErrorKind::Usage, kSchedule, "the run has no known length in ", epochs ? "epochs" : "steps",
        endless ? ", since the data are a stream" : "", "; hint: set ", field,
        epochs    ? " or trainer.max_epochs"
        : endless ? " or trainer.max_steps"
                  : ", trainer.max_steps or trainer.max_epochs");
  return static_cast<double>(total);
}

// Length of the curve after the warm-up.
double fall_length(const ScheduleOptions& o, int64_t given, const ScheduleContext& context, const char* field) {
  check(given >= 0, ErrorKind::Usage, kSchedule, field, " is ", given, "; it must be at least 0");
  if (given > 0) return static_cast<double>(given);
  return std::max(run_length(by_epoch(o.interval), context, field) - warmup_length(o), 1.0);
}

double min_factor(double min_lr, const ScheduleContext& context) {
  check(min_lr >= 0 && (context.base_lr <= 0 || min_lr <= context.base_lr), ErrorKind::Usage, kSchedule, "min_lr is ", min_lr,
        "; it must be between 0 and the optimizer's lr, ", context.base_lr);
  return context.base_lr > 0 ? min_lr / context.base_lr : 1;
}

std::unique_ptr<LrSchedule> made(const ScheduleOptions& o, std::function<double(double)> curve, bool after_warmup) {
  const double length = warmup_length(o);
  const double start = o.warmup_start_factor;
  auto factor = [=](double t) { return schedule::warmup(t, length, start) * curve(after_warmup ? std::max(t - length, 0.0) : t); };
  return std::make_unique<LrSchedule>(std::move(factor), by_epoch(o.interval), length);
}

std::unique_ptr<LrSchedule> make_exponential(const ExponentialOptions& o, const ScheduleContext& context) {
  check(o.gamma > 0 && o.gamma <= 1, ErrorKind::Usage, kSchedule, "gamma is ", o.gamma, "; it must be more than 0 and at most 1");
  return made(
      o, [g = o.gamma, f = min_factor(o.min_lr, context)](double t) { return std::max(std::pow(g, t), f); }, true);
}

std::unique_ptr<LrSchedule> make_cosine_restarts(const CosineRestartsOptions& o, const ScheduleContext& context) {
  check(o.T_0 >= 1 && o.T_mult >= 1 && o.cycle_decay > 0 && o.cycle_decay <= 1, ErrorKind::Usage, kSchedule, "T_0 is ", o.T_0, ", T_mult ",
        o.T_mult, " and cycle_decay ", o.cycle_decay, "; T_0 and T_mult must be at least 1, and cycle_decay more than 0 and at most 1");
  return made(
      o,
      [first = static_cast<double>(o.T_0), mult = static_cast<double>(o.T_mult), f = min_factor(o.min_lr, context),
       d = o.cycle_decay](double t) { return schedule::cosine_restarts(t, first, mult, f, d); },
      true);
}

std::unique_ptr<LrSchedule> make_wsd(const WsdOptions& o, const ScheduleContext& context) {
  check(o.stable_iters >= 0 && o.decay_iters >= 0, ErrorKind::Usage, kSchedule, "stable_iters is ", o.stable_iters, " and decay_iters ",
        o.decay_iters, "; both must be at least 0");
  check(o.decay == "linear" || o.decay == "cosine" || o.decay == "1-sqrt", ErrorKind::Usage, kSchedule, "decay is '", o.decay,
        "'; it must be linear, cosine or 1-sqrt");
  const bool epochs = by_epoch(o.interval);
  const double decay =
      o.decay_iters > 0 ? static_cast<double>(o.decay_iters) : std::max(std::round(run_length(epochs, context, "decay_iters") / 10), 1.0);
  const double stable = o.stable_iters > 0 ? static_cast<double>(o.stable_iters)
                                           : std::max(run_length(epochs, context, "stable_iters") - warmup_length(o) - decay, 0.0);
  return made(
      o, [=, f = min_factor(o.min_lr, context), shape = o.decay](double t) { return schedule::stable_decay(t, stable, decay, f, shape); },
      true);
}

std::unique_ptr<LrSchedule> make_plateau(const PlateauOptions& o, const ScheduleContext& context) {
  check(o.factor >= 0 && o.factor < 1 && o.patience >= 0 && o.cooldown >= 0 && o.threshold >= 0 && o.eps >= 0, ErrorKind::Usage, kSchedule,
        "factor is ", o.factor, ", patience ", o.patience, ", cooldown ", o.cooldown, ", threshold ", o.threshold, ", eps ", o.eps,
        "; factor must be less than 1, and all of them at least 0");
  check(o.threshold_mode == "rel" || o.threshold_mode == "abs", ErrorKind::Usage, kSchedule, "threshold_mode is '", o.threshold_mode,
        "'; it must be rel or abs");
  min_factor(o.min_lr, context);
  const double length = warmup_length(o), start = o.warmup_start_factor;
  return std::make_unique<LrSchedule>([=](double t) { return schedule::warmup(t, length, start); }, by_epoch(o.interval), length,
                                      std::make_shared<const PlateauOptions>(o));
}

std::unique_ptr<LrSchedule> make_one_cycle(const OneCycleOptions& o, const ScheduleContext& context) {
  const bool epochs = by_epoch(o.interval);
  check(o.pct_start >= 0 && o.pct_start <= 1 && o.div_factor > 0 && o.final_div_factor > 0 && o.max_lr >= 0, ErrorKind::Usage, kSchedule,
        "pct_start ", o.pct_start, ", div_factor ", o.div_factor, ", final_div_factor ", o.final_div_factor, ", max_lr ", o.max_lr,
        "; pct_start must be between 0 and 1, the divisors positive, max_lr at least 0");
  const double length = o.total_iters > 0 ? static_cast<double>(o.total_iters) : run_length(epochs, context, "total_iters");
  if (o.max_lr > 0 && context.base_lr > 0 && o.max_lr != context.base_lr)
    log_warning("lr_scheduler.max_lr is ", o.max_lr, " and optimizer.lr ", context.base_lr,
                ": the rate rises to max_lr, and optimizer.lr has no effect; hint: give both the same value, or leave max_lr out");
  const double peak = o.max_lr > 0 && context.base_lr > 0 ? o.max_lr / context.base_lr : 1;
  return std::make_unique<LrSchedule>(
      [=](double t) { return peak * schedule::one_cycle(t, length, o.pct_start, o.div_factor, o.final_div_factor); }, epochs);
}

}  // namespace

const ConfigTable<ConstantOptions>& ConstantOptions::config_table() {
  static const auto table = schedule_table<ConstantOptions>("constant");
  return table;
}

const ConfigTable<StepLrOptions>& StepLrOptions::config_table() {
  using T = StepLrOptions;
  static const auto table =
      schedule_table<T>("step")
          .field("step_size", &T::step_size, "number of epochs or steps between multiplications of the rate by gamma", at_least(1))
          .field("gamma", &T::gamma, "what the rate is multiplied by", at_least(0));
  return table;
}

const ConfigTable<MultistepOptions>& MultistepOptions::config_table() {
  using T = MultistepOptions;
  static const auto table = schedule_table<T>("multistep")
                                .field("milestones", &T::milestones, "the rate is multiplied by gamma at each of these", at_least(0))
                                .field("gamma", &T::gamma, "what the rate is multiplied by", at_least(0));
  return table;
}

const ConfigTable<ExponentialOptions>& ExponentialOptions::config_table() {
  using T = ExponentialOptions;
  static const auto table =
      schedule_table<T>("exponential")
          .field("gamma", &T::gamma, "factor of each epoch or step after the warm-up", {.lo = 0, .hi = 1, .lo_open = true})
          .field("min_lr", &T::min_lr, "the lowest rate", at_least(0));
  return table;
}

const ConfigTable<CosineRestartsOptions>& CosineRestartsOptions::config_table() {
  using T = CosineRestartsOptions;
  static const auto table =
      schedule_table<T>("cosine_restarts")
          .field("T_0", &T::T_0, "length of the first cycle, after the warm-up", at_least(1))
          .field("T_mult", &T::T_mult, "each cycle is this many times as long as the one before", at_least(1))
          .field("cycle_decay", &T::cycle_decay, "share of the rate at which the next cycle begins", {.lo = 0, .hi = 1, .lo_open = true})
          .field("min_lr", &T::min_lr, "the rate at the end of a cycle", at_least(0))
          .synonym("eta_min", "min_lr");
  return table;
}

const ConfigTable<PlateauOptions>& PlateauOptions::config_table() {
  using T = PlateauOptions;
  static const auto table =
      schedule_table<T>("plateau")
          .field("monitor", &T::monitor, "the metric that is watched, such as val/loss, val/acc1 or train/loss")
          .field("mode", &T::mode, "whether a smaller or a larger value is better; auto: by the metric's name",
                 one_of({"min", "max", "auto"}))
          .field("factor", &T::factor, "what the rate is multiplied by", between(0, 0.999999))
          .field("patience", &T::patience, "validations without improvement before the rate falls", at_least(0))
          .field("threshold", &T::threshold, "least change that counts as improvement", at_least(0))
          .field("threshold_mode", &T::threshold_mode, "rel: the threshold is a share of the best value", one_of({"rel", "abs"}))
          .field("cooldown", &T::cooldown, "validations after a reduction that do not count", at_least(0))
          .field("min_lr", &T::min_lr, "the lowest rate", at_least(0))
          .field("eps", &T::eps, "a smaller reduction of the rate is left out", at_least(0));
  return table;
}

const ConfigTable<WsdOptions>& WsdOptions::config_table() {
  using T = WsdOptions;
  static const auto table =
      schedule_table<T>("wsd")
          .field("stable_iters", &T::stable_iters, "length of the stable phase after the warm-up; 0: the rest of the run", at_least(0))
          .field("decay_iters", &T::decay_iters, "length of the decay; 0: a tenth of the run", at_least(0))
          .field("min_lr", &T::min_lr, "the rate at the end", at_least(0))
          .field("decay", &T::decay, "shape of the decay", one_of({"linear", "cosine", "1-sqrt"}));
  return table;
}

const ConfigTable<CosineOptions>& CosineOptions::config_table() {
  using T = CosineOptions;
  static const auto table = schedule_table<T>("cosine")
                                .field("T_max", &T::T_max, "length of the fall after the warm-up; 0: the rest of the run", at_least(0))
                                .field("min_lr", &T::min_lr, "the rate at the end", at_least(0))
                                .synonym("eta_min", "min_lr");
  return table;
}

const ConfigTable<LinearOptions>& LinearOptions::config_table() {
  using T = LinearOptions;
  static const auto table =
      schedule_table<T>("linear")
          .field("total_iters", &T::total_iters, "length of the fall after the warm-up; 0: the rest of the run", at_least(0))
          .field("min_lr", &T::min_lr, "the rate at the end", at_least(0));
  return table;
}

const ConfigTable<PolynomialOptions>& PolynomialOptions::config_table() {
  using T = PolynomialOptions;
  static const auto table =
      schedule_table<T>("polynomial")
          .field("total_iters", &T::total_iters, "length of the fall after the warm-up; 0: the rest of the run", at_least(0))
          .field("power", &T::power, "1: linear; above 1: faster decay at first", more_than(0))
          .field("min_lr", &T::min_lr, "the rate at the end", at_least(0));
  return table;
}

const ConfigTable<OneCycleOptions>& OneCycleOptions::config_table() {
  using T = OneCycleOptions;
  static const auto table = ConfigTable<T>("lr_scheduler one_cycle")
                                .field("interval", &T::interval, "unit of all lengths here", one_of({"epoch", "step"}))
                                .field("max_lr", &T::max_lr, "the highest rate; 0: the optimizer's lr", at_least(0))
                                .field("total_iters", &T::total_iters, "length of the cycle; 0: the run's", at_least(0))
                                .field("pct_start", &T::pct_start, "share of the cycle in which the rate rises", between(0, 1))
                                .field("div_factor", &T::div_factor, "first rate is max_lr over this", more_than(0))
                                .field("final_div_factor", &T::final_div_factor, "last rate is the first over this", more_than(0))
                                .synonym("total_steps", "total_iters");
  return table;
}

void add_builtin_schedules(ScheduleRegistry& registry) {
  using Context = const ScheduleContext&;
  registry.add<ConstantOptions>("constant", "the same rate throughout", [](const ConstantOptions& o, Context) {
    return made(
        o, [](double) { return 1.0; }, false);
  });
  registry.add<StepLrOptions>("step", "times gamma every step_size", [](const StepLrOptions& o, Context) {
    return made(
        o, [s = static_cast<double>(o.step_size), g = o.gamma](double t) { return schedule::step(t, s, g); }, false);
  });
  registry.add<MultistepOptions>("multistep", "times gamma at milestones", [](const MultistepOptions& o, Context) {
    return made(
        o, [m = o.milestones, g = o.gamma](double t) { return schedule::multistep(t, m, g); }, false);
  });
  registry.add<ExponentialOptions>("exponential", "times gamma in each epoch or step",
                                   [](const ExponentialOptions& o, Context c) { return make_exponential(o, c); });
  registry.add<CosineRestartsOptions>("cosine_restarts", "half cosines from lr to min_lr, one after another",
                                      [](const CosineRestartsOptions& o, Context c) { return make_cosine_restarts(o, c); });
  registry.add<WsdOptions>("wsd", "warm-up, a constant rate, decay", [](const WsdOptions& o, Context c) { return make_wsd(o, c); });
  registry.add<CosineOptions>("cosine", "half a cosine from lr to min_lr", [](const CosineOptions& o, Context c) {
    return made(
        o, [n = fall_length(o, o.T_max, c, "T_max"), f = min_factor(o.min_lr, c)](double t) { return schedule::cosine(t, n, f); }, true);
  });
  registry.add<LinearOptions>("linear", "a straight line from lr to min_lr", [](const LinearOptions& o, Context c) {
    return made(
        o,
        [n = fall_length(o, o.total_iters, c, "total_iters"), f = min_factor(o.min_lr, c)](double t) { return schedule::linear(t, n, f); },
        true);
  });
  registry.add<PolynomialOptions>("polynomial", "a power of the remaining fraction of the run", [](const PolynomialOptions& o, Context c) {
    return made(
        o,
        [n = fall_length(o, o.total_iters, c, "total_iters"), p = o.power, f = min_factor(o.min_lr, c)](double t) {
          return schedule::polynomial(t, n, p, f);
        },
        true);
  });
  registry.add<PlateauOptions>("plateau", "lower whenever a metric no longer improves",
                               [](const PlateauOptions& o, Context c) { return make_plateau(o, c); });
  registry.add<OneCycleOptions>("one_cycle", "up to max_lr and down again",
                                [](const OneCycleOptions& o, Context c) { return make_one_cycle(o, c); });
}

}  // namespace npu_train
