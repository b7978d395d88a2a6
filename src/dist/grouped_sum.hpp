// The sum of a bucket over ranks in three steps: inside each group of ranks, between the first ranks of the groups, and back inside. Every
// rank gets the bits of one sum.
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

  // `compressor`: of what travels between groups, on a rank that leads one; nullptr: it travels as it is.
  GroupedSum(const RankGroups& groups, std::unique_ptr<Compressor> compressor) : groups_(groups), compressor_(std::move(compressor)) {}

  // `content`, where the transport reads it, is added inside the group, and becomes the sum over all ranks. Errors are in units of `unit`.
  // Never waits.
  void begin(const at::Tensor& content, double unit);
  // How many steps have been taken: each waits for what is on its way, and sends on.
  int steps() const { return steps_; }
  void step();
  // Whether step() returns at once.
  bool ready();
  // Whether everything that was sent has arrived.
  bool done();
  // A compression that exchanges twice begins the second exchange: after two steps of all buckets, before the third.
  bool turns() const { return compressor_ != nullptr && compressor_->turns(); }
  void turn();
  // Takes all steps that are left, and waits for the last one.
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
