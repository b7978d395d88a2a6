// The score of the weights by checkpoint.monitor: what a checkpoint is saved with, and what the store ranks checkpoints by.
#pragma once

#include <cmath>
#include <limits>

#include "npu_train/base/state.hpp"
#include "npu_train/train/monitors.hpp"

namespace npu_train::detail {

class CheckpointRanking final : public Stateful {
 public:
  // `options` with a monitor that is a metric, not "auto".
  explicit CheckpointRanking(const CheckpointOptions& options)
      : monitor_(options.monitor), larger_(larger_is_better(options.monitor, options.mode)) {}

  // Averages without the monitored one leave the score as it is.
  void note(const Scalars& train, const Scalars& val) {
    if ((is_of_training(monitor_) ? train : val).empty()) return;
    score_only(train, val);
    best_ = best_so_far();
  }
  // What the checkpoint of a stop gets: no state follows from it.
  void score_only(const Scalars& train, const Scalars& val) { score_ = monitored(monitor_, train, val); }
  // A step is about to change the weights: their score is not known from here on.
  void forget() { score_ = std::numeric_limits<double>::quiet_NaN(); }

  double score() const { return score_; }
  double best() const { return best_; }
  // The newest weights included.
  double best_so_far() const { return improves(score_, best_, larger_, 0) ? score_ : best_; }
  const std::string& monitor() const { return monitor_; }

  State state() const override { return {{}, {{"best_score", best_}}}; }
  void load_state(const State& state) override { best_ = state.number("best_score", "loop"); }

 private:
  std::string monitor_;
  bool larger_;
  double score_ = std::numeric_limits<double>::quiet_NaN();
  double best_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace npu_train::detail
