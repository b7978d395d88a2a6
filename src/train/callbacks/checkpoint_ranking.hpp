// The score of the weights by checkpoint.monitor: checkpoints save it, and the store ranks them by it.
#pragma once

#include <cmath>
#include <limits>

#include "npu_train/base/state.hpp"
#include "npu_train/train/monitors.hpp"

namespace npu_train::detail {

class CheckpointRanking final : public Stateful {
 public:
  // `options.monitor` must name a metric, not "auto".
  explicit CheckpointRanking(const CheckpointOptions& options)
      : monitor_(options.monitor), larger_(larger_is_better(options.monitor, options.mode)) {}

  // Takes the averages; if those of the monitored data are empty, the score is unchanged.
  void note(const Scalars& train, const Scalars& val) {
    if ((is_of_training(monitor_) ? train : val).empty()) return;
    score_only(train, val);
    best_ = best_so_far();
  }
  // Sets only the score, for the checkpoint at a stop; changes no saved state.
  void score_only(const Scalars& train, const Scalars& val) { score_ = monitored(monitor_, train, val); }
  // Called before a step changes the weights: the score of the new ones is not known.
  void forget() { score_ = std::numeric_limits<double>::quiet_NaN(); }

  double score() const { return score_; }
  double best() const { return best_; }
  // Returns the best score, including the newest weights.
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
