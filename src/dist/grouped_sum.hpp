// Hierarchical sum of a bucket in three steps: inside each group of ranks, between the first ranks of the groups, and back inside each
// group. Every rank gets the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "dist/compressor.hpp"
#include "dist/rank_groups.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class GroupedSum {
 public:
  static constexpr int kEnd = 3;

  // `compressor`: compresses the messages between groups, on a rank that leads its group; nullptr: no compression.
  GroupedSum(const RankGroups& groups, std::unique_ptr<Compressor> compressor) : groups_(groups), compressor_(std::move(compressor)) {}

  // Begins to replace `content` by its sum over all ranks. `content` is in the memory that the transport sends from. `unit` rescales the
  // compression errors to the scale of `content`. Never waits.
  void begin(const at::Tensor& content, double unit);
  // Returns the number of steps that have been taken. Each step waits for messages in flight, and sends the next ones.
  int steps() const { return steps_; }
  void step();
  // Whether step() would return immediately.
  bool ready();
  // Whether everything that was sent has arrived.
  bool done();
  // Whether the compression has a second exchange; turn() begins it after two steps of all buckets, before the third.
  bool turns() const { return compressor_ != nullptr && compressor_->turns(); }
  void turn();
  // Takes all remaining steps, and waits for the last one.
  void finish();

  Compressor* compressor() const { return compressor_.get(); }
  void set_compressor(std::unique_ptr<Compressor> compressor) { compressor_ = std::move(compressor); }
  const ReductionTimes::Bucket& times() const { return times_; }

 private:
  bool leads() const { return groups_.leaders != nullptr; }
  void send_between();
  void receive_between();
  void give_back();

  const RankGroups& groups_;
  std::unique_ptr<Compressor> compressor_;
  at::Tensor content_;
  double unit_ = 1;
  int steps_ = kEnd;
  bool turned_ = false;
  std::unique_ptr<Collective> inside_, between_, back_;
  ReductionTimes::Bucket times_;
};

}  // namespace npu_train::detail
