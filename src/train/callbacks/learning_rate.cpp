#include "train/callbacks/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/train/monitors.hpp"

namespace npu_train::detail {

LearningRate::LearningRate(const LrSchedule* schedule, std::vector<OptimizerParts> optimizers)
    : schedule_(schedule), optimizers_(std::move(optimizers)), base_lr_(optimizers_.front().base_lr) {
  if (const auto* o = schedule != nullptr ? schedule->plateau() : nullptr; o != nullptr)
    plateau_.emplace(*o, larger_is_better(o->monitor, o->mode));
}

void LearningRate::note(const Scalars& train, const Scalars& val) {
  if (!plateau_ || (is_of_training(monitor()) ? train : val).empty()) return;
  const double before = plateau_->factor();
  plateau_->note(monitored(monitor(), train, val), base_lr_);
  if (plateau_->factor() != before)
    log_info("lr_scheduler plateau: ", monitor(), " no longer improves; the learning rate falls to ",
             printed("%.10g", base_lr_ * plateau_->factor()));
}

void LearningRate::set(int64_t epoch, int64_t global_step) {
  const auto t = static_cast<double>(schedule_->by_epoch() ? epoch : global_step);
  const auto& first = *optimizers_.front().optimizer;
  if (last_ && first.lr() != *last_ && !std::exchange(warned_, true))
    log_warning("the optimizer's learning rate was set to ", first.lr(),
                ", but the schedule sets it at every step; hint: TrainLoop::set_lr_factor() holds");
  const double factor = schedule_->factor(t) * factor_ * (plateau_ ? plateau_->factor() : 1);
  for (const auto& one : optimizers_) one.optimizer->set_lr(one.base_lr * factor);
  last_ = first.lr();
  next_ = t + 1;
}

void LearningRate::set_factor(double factor) {
  check(factor >= 0 && std::isfinite(factor), ErrorKind::Usage, "TrainLoop::set_lr_factor", "the factor is ", factor,
        "; allowed: a finite number of at least 0");
  factor_ = factor;
}

State LearningRate::state() const {
  State out = plateau_ ? plateau_->state() : State();
  out.values["lr_factor"] = factor_;
  if (!next_) return out;
  out.values["lr_place"] = *next_;
  out.values["lr_there"] = base_lr_ * schedule_->factor(*next_) * (plateau_ ? plateau_->factor() : 1);
  return out;
}

// Warns if the rate has changed: in a longer run, a schedule that takes its length from the run has other rates.
void LearningRate::load_state(const State& state) {
  factor_ = state.number("lr_factor", "loop");
  if (plateau_ && state.values.count("plateau_factor") != 0) plateau_->load_state(state);
  next_.reset();
  if (state.values.count("lr_there") == 0) return;  // older checkpoints do not have it
  next_ = state.number("lr_place", "loop");
  const auto before = state.number("lr_there", "loop");
  const auto now = base_lr_ * schedule_->factor(*next_) * (plateau_ ? plateau_->factor() : 1);
  if (std::abs(now - before) > 1e-9 * std::max(std::abs(now), std::abs(before)))
    log_warning(
        "the learning rate of ", schedule_->by_epoch() ? "epoch " : "step ", *next_, " is ", now, ", and was ", before,
        " in the run of the checkpoint: the schedule, its length (trainer.max_epochs, trainer.max_steps) or optimizer.lr has changed; "
        "hint: a fixed length, such as lr_scheduler.T_max, keeps the rates when a run is prolonged");
}

}  // namespace npu_train::detail
