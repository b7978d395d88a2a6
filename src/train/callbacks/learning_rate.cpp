#include "train/callbacks/learning_rate.hpp"

#include <cmath>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train::detail {

void LearningRate::set(int64_t epoch, int64_t global_step) {
  const auto t = static_cast<double>(schedule_->by_epoch() ? epoch : global_step);
  if (last_ && optimizer_.lr() != *last_ && !std::exchange(warned_, true))
    log_warning("the optimizer's learning rate was set to ", optimizer_.lr(),
                ", but the schedule sets it at every step; hint: TrainLoop::set_lr_factor() holds");
  optimizer_.set_lr(base_lr_ * schedule_->factor(t) * factor_);
  last_ = optimizer_.lr();
}

void LearningRate::set_factor(double factor) {
  check(factor >= 0 && std::isfinite(factor), ErrorKind::Usage, "TrainLoop::set_lr_factor", "the factor is ", factor,
        "; allowed: a finite number of at least 0");
  factor_ = factor;
}

}  // namespace npu_train::detail
