// The schedule that follows a metric.
#include <algorithm>
#include <cmath>

#include "npu_train/optim/schedule.hpp"

namespace npu_train {

bool Plateau::improves(double value) const {
  if (!best_) return std::isfinite(value);
  const double change = options_.threshold_mode == "rel" ? *best_ * options_.threshold : options_.threshold;
  return larger_ ? value > *best_ + change : value < *best_ - change;
}

void Plateau::note(double value, double base_lr) {
  if (improves(value)) {
    best_ = value;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return;
  bad_ = 0;
  cooldown_ = options_.cooldown;
  const double lr = base_lr * factor_, lower = std::max(lr * options_.factor, options_.min_lr);
  if (lr - lower > options_.eps) factor_ = lower / base_lr;
}

State Plateau::state() const {
  State out{{}, {{"plateau_factor", factor_}, {"plateau_bad", bad_}, {"plateau_cooldown", cooldown_}}};
  if (best_) out.values["plateau_best"] = *best_;
  return out;
}

void Plateau::load_state(const State& state) {
  const auto factor = state.number("plateau_factor", "lr_scheduler");
  const auto bad = state.integer("plateau_bad", "lr_scheduler"), cooldown = state.integer("plateau_cooldown", "lr_scheduler");
  best_.reset();
  if (state.values.count("plateau_best") != 0) best_ = state.number("plateau_best", "lr_scheduler");
  factor_ = factor, bad_ = bad, cooldown_ = cooldown;
}

}  // namespace npu_train
