// Writes the checkpoints of a run, and knows which state the newest one contains. Also computes the score by which they are ranked.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "npu_train/train/monitors.hpp"
#include "npu_train/train/step.hpp"
#include "train/callbacks/shared_save.hpp"

namespace npu_train::detail {

// Returns whether all values of the parameters are finite.
bool all_finite(const ParameterSet& parameters);

class CheckpointWriter {
 public:
  struct Context {
    CheckpointStore* const& store;  // nullptr: writes nothing; a program may set it later
    Strategy& strategy;             // decides which rank writes
    bool enabled;                   // false with trainer.fast_dev_run
    bool async;
    const Observers& observers;
    const WindowStep& step;
    std::vector<OptimizerParts> optimizers;
    const ConfigNode& config;
    std::function<RunState(StateSlices& own)> state;
    std::function<CheckpointMeta()> meta;
    std::function<void()> not_finite;                      // called instead of writing a checkpoint with weights that are not finite;
                                                           // throws
    std::function<void(const std::string& path)> written;  // called when a checkpoint has been written to disk
  };
  explicit CheckpointWriter(Context context) : run_(std::move(context)), shared_(run_.strategy.ranks()) {}

  // Writes a checkpoint, and returns its path; "" without a store and on a rank that writes nothing.
  std::string save();
  // With checkpoint.async, copies the state and writes it while training continues; otherwise like save().
  void begin();
  // Ends the checkpoint of begin() and reports it; without `wait`, only if it is already written. Rethrows an error of the writing thread.
  void finish(bool wait);
  // Writes the diverged state, and returns its folder. Returns "" without a store. If the state could not be written, logs a warning and
  // returns "".
  std::string save_diverged();
  // A checkpoint to which each rank writes its slices is complete when the main rank knows that all ranks have written. In each step, the
  // ranks agree on whether any rank is still writing; `some_rank_is_writing` is the result of the last agreement, equal on every rank.
  bool is_writing_part() const { return shared_.is_writing(); }
  void note_parts(bool some_rank_is_writing);
  // Ends a checkpoint of several ranks, or logs a warning if it could not be written. Every rank must call it.
  void settle_parts();

  // Called after a state was loaded. Its checkpoint then counts as the newest.
  void loaded(int64_t attempts) { saved_at_ = attempts; }
  // Returns whether the newest checkpoint contains the state after `attempts` attempted steps, and a score unless `score` is NaN. The
  // number of attempts is equal on all ranks; the number of batches may differ.
  bool has(int64_t attempts, double score) const;
  const CheckpointStore* store() const { return run_.store; }

 private:
  // Returns whether checkpoints are written. The main rank decides, because other ranks may have no store.
  bool writes() const;
  void check_finite() const;
  // Returns the state that the main rank writes, with the generators of all ranks; `own` gets the slices of this rank.
  RunState state_of_ranks(StateSlices& own) const;
  void begin_parts(const CheckpointMeta& meta, bool async);
  std::string finish_parts();
  void note(const CheckpointMeta& meta);

  Context run_;
  SharedSave shared_;
  CheckpointMeta shared_meta_;
  bool parts_were_asked_ = false, parts_are_written_ = false;
  int64_t saved_at_ = 0;        // attempts at the newest checkpoint; -1: that checkpoint could not be written
  bool without_score_ = false;  // the newest checkpoint was written before its weights were validated
};

// Computes the score of the weights by checkpoint.monitor. Checkpoints save the score, and the store ranks checkpoints by it.

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
  // Called before a step changes the weights: the score of the new weights is not known.
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
