// The state of a training: model, optimizer, scaler, averages, random number generators, loader, and the position in the data.
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
  // Returns nullptr if the part is excluded. Error(Checkpoint) if the state does not have it.
  const State* find(const std::string& part) const;
  bool has(const std::string& part) const { return state_.count(part) > 0; }

 private:
  const RunState& state_;
  const std::vector<std::string>& leave_out_;
};

// Saves the state of a training. With a strategy that shards, moves this rank's slices to `slices`. If `slices` is nullptr, every rank must
// call this function, and gets all shards joined.
void save_training(const LoopParts& parts, const LoopPosition& position, StateSlices* slices, RunState& out);
// Loads the parts in the order of their dependencies. The caller must have set the trained parameters before (TrainedParameters).
void load_training(const LoopParts& parts, LoopPosition& position, const SavedParts& saved);

// Returns the weights in the checkpoint `path` that belong to the averaged parameters: slices if these are sharded.
ParameterSet weights_in(const std::string& path, const LoopParts& parts);

// Returns the data of the run for a manifest; the caller adds the score.
CheckpointMeta checkpoint_meta(const LoopParts& parts, const LoopPosition& position);

}  // namespace npu_train::detail
