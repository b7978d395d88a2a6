// A checkpoint that all ranks write. Each rank writes its slices. The main rank also writes the rest and, when everything is on the disk,
// the manifest.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "npu_train/dist/ranks.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

class SharedSave {
 public:
  explicit SharedSave(Ranks& ranks) : ranks_(ranks) {}

  // Begins to write. Every rank must call it; the main rank passes a folder. With `async`, a thread writes a copy of the data.
  void begin(std::unique_ptr<CheckpointFolder> folder, const RunState& state, const StateSlices& slices, const ConfigNode& config,
             bool async);
  // True between begin() and finish(), equally on every rank.
  bool under_way() const { return part_.valid(); }
  // Returns whether this rank is still writing its part.
  bool is_writing() const;
  // Waits for the parts of all ranks; every rank must call it. Returns, on the main rank, the folder with all parts listed.
  // Error(Checkpoint) on every rank if one of them could not write its part.
  std::unique_ptr<CheckpointFolder> finish();

 private:
  Ranks& ranks_;
  std::unique_ptr<CheckpointFolder> folder_;
  RunState state_;
  StateSlices slices_;
  bool copied_ = false;
  std::future<std::string> part_;  // index of the part; last member, so that its thread ends before the data are destroyed
};

}  // namespace npu_train::detail
