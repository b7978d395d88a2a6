// Writes the checkpoints of a run and knows which state the newest one holds.
#pragma once

#include <functional>
#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "npu_train/train/step.hpp"
#include "train/callbacks/shared_save.hpp"

namespace npu_train::detail {

// False if a parameter has a value that is not finite.
bool all_finite(const ParameterSet& parameters);

class CheckpointWriter {
 public:
  struct Context {
    CheckpointStore* const& store;  // nullptr: nothing is written; a program may set it later
    Strategy& strategy;             // says which rank writes
    bool enabled;                   // false for trainer.fast_dev_run
    bool async;
    const Observers& observers;
    const TrainStep& step;
    const Optimizer& optimizer;
    const ConfigNode& config;
    std::function<RunState(StateSlices& own)> state;
    std::function<CheckpointMeta()> meta;
    std::function<void()> not_finite;                      // throws, in place of a checkpoint with weights that are not finite
    std::function<void(const std::string& path)> written;  // a checkpoint is on the disk
  };
  explicit CheckpointWriter(Context context) : run_(std::move(context)), shared_(run_.strategy) {}

  // Writes, and returns the path; "" without a store and on a rank that writes nothing.
  std::string save();
  // With checkpoint.async the state is copied, and written next to the training.
  void begin();
  // Reports what begin() wrote; without `wait` only if it is done. Throws what the writing threw.
  void finish(bool wait);
  // The folder of the diverged state; "" without a store, or with a warning if it could not be written.
  std::string save_diverged();
  // A checkpoint that ranks write together, each its slices, is complete only when the main rank knows that all have written. Whether this
  // rank is still writing travels with the agreement of a step: `some_rank` is what the last one said, alike on every rank.
  bool is_writing_part() const { return shared_.is_writing(); }
  void note_parts(bool some_rank_is_writing);
  // Ends a checkpoint of several ranks, or warns that it could not be written. Every rank makes the call.
  void settle_parts();

  // A state was loaded: it is in a checkpoint already.
  void loaded(int64_t attempts) { saved_at_ = attempts; }
  // Whether the newest checkpoint holds the state after so many steps attempted (which ranks count alike, unlike their batches), with its
  // score if there is one.
  bool has(int64_t attempts, double score) const;
  const CheckpointStore* store() const { return run_.store; }

 private:
  // The main rank knows it; others may have no store.
  bool writes() const;
  void check_finite() const;
  // What the main rank writes, with the generators of all ranks, and the slices of this rank.
  RunState state_of_ranks(StateSlices& own) const;
  void begin_parts(const CheckpointMeta& meta, bool async);
  std::string finish_parts();
  void note(const CheckpointMeta& meta);

  Context run_;
  SharedSave shared_;
  CheckpointMeta shared_meta_;
  bool parts_were_asked_ = false, parts_are_written_ = false;
  int64_t saved_at_ = 0;        // attempts at the newest checkpoint; -1: it could not be written
  bool without_score_ = false;  // it was written before its weights were validated
};

}  // namespace npu_train::detail
