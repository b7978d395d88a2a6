#include "npu_train/train/callbacks/early_stopping.hpp"

#include <utility>

#include "npu_train/train/monitors.hpp"

namespace npu_train {

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) { check_limits(options_, "early_stopping"); }

void EarlyStopping::note(const Scalars& train, const Scalars& val) {
  if (!options_.enabled || (detail::is_of_training(options_.monitor) ? train : val).empty()) return;
  const auto value = detail::monitored(options_.monitor, train, val);
  if (detail::improves(value, best_, larger_is_better(options_.monitor, options_.mode), options_.min_delta)) {
    best_ = value;
    without_improvement_ = 0;
  } else {
    ++without_improvement_;
  }
}

State EarlyStopping::state() const { return {{}, {{"without_improvement", without_improvement_}, {"early_best", best_}}}; }

void EarlyStopping::load_state(const State& state) {
  const auto without_improvement = state.integer("without_improvement", "loop");
  best_ = state.number("early_best", "loop");
  without_improvement_ = without_improvement;
}

}  // namespace npu_train
