// The state of what a loop runs on: model, optimizer, scaler, EMA, random number generators, loader, and the place in the data.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// The parts of a saved state, except those that the caller excludes.
class SavedParts {
 public:
  SavedParts(const RunState& state, const std::vector<std::string>& leave_out) : state_(state), leave_out_(leave_out) {}
  // nullptr if it is excluded. Error(Checkpoint) if the state does not have it.
  const State* find(const std::string& part) const;
  bool has(const std::string& part) const { return state_.count(part) > 0; }

 private:
  const RunState& state_;
  const std::vector<std::string>& leave_out_;
};

// With a strategy that shards, this rank's slices go to `slices`. Without it every rank makes the call, and gets all shards joined.
void save_training(const LoopParts& parts, const LoopPosition& position, StateSlices* slices, RunState& out);
// In the order in which parts depend on each other; which parameters are trained is known before (TrainedParameters).
void load_training(const LoopParts& parts, LoopPosition& position, const SavedParts& saved);

// What a manifest says of the run, without its score.
CheckpointMeta checkpoint_meta(const LoopParts& parts, const LoopPosition& position);

}  // namespace npu_train::detail
