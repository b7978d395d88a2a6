// A checkpoint that all ranks write: each its slices, the main rank also the rest and, when all of it is on the disk, the manifest.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

class SharedSave {
 public:
  explicit SharedSave(Strategy& strategy) : strategy_(strategy) {}

  // Every rank makes the call; only the main rank has a folder. With `async` what is to be written is copied first, and written by a
  // thread.
  void begin(std::unique_ptr<CheckpointFolder> folder, const RunState& state, const StateSlices& slices, const ConfigNode& config,
             bool async);
  // Between begin() and finish(), alike on every rank.
  bool under_way() const { return part_.valid(); }
  // Whether this rank is still writing its part.
  bool is_writing() const;
  // Every rank makes the call; it waits for all parts. The folder with every part listed, on the main rank. Error(Checkpoint) on every rank
  // if the part of one could not be written.
  std::unique_ptr<CheckpointFolder> finish();

 private:
  Strategy& strategy_;
  std::unique_ptr<CheckpointFolder> folder_;
  RunState state_;
  StateSlices slices_;
  bool copied_ = false;
  std::future<std::string> part_;  // the index of it; last: ends before what it writes from
};

}  // namespace npu_train::detail
