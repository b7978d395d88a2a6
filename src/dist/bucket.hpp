// A bucket of gradients during its reduction.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/compressor.hpp"
#include "dist/flat_layout.hpp"
#include "dist/grouped_sum.hpp"
#include "dist/rank_groups.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class Bucket {
 public:
  // How gradients are sent.
  struct Travel {
    at::ScalarType dtype = at::kFloat;  // dtype in which fp32 gradients are sent; must be fp32 unless the sums are ordered
    bool between_devices = false;       // sent without a copy in host memory
    Compression compression{};          // used for fp32 gradients if it has error feedback
    bool compresses = true;             // false: compression begins with compress(), not with the first window
  };

  Bucket(FlatBucket layout, const ParameterSet& parameters, const ShardGroups& groups, const RankGroups& rank_groups, Travel travel,
         Sharding sharding);

  const FlatBucket& layout() const { return layout_; }

  // Begins a window, with an empty sum.
  void begin_window();
  // Begins a round; no piece of it is delivered yet.
  void begin_round();
  // Copies the gradient of a piece into the bucket, and drops the parameter's gradient. Called at most once for each piece in a round.
  void deliver(size_t piece);
  bool delivered(size_t piece) const { return delivered_[piece]; }
  bool complete() const { return missing_ == 0; }
  // Fills pieces that were not delivered with -0.0, which changes no bits of a number to which it is added.
  void fill_missing();

  // Sends this rank's gradients; if `ordered`, sends each part to the rank that adds it. `unit` rescales the compression errors of earlier
  // windows to these gradients.
  void exchange(bool ordered, double unit = 1);
  // The sum of a bucket takes kSteps steps; returns how many of them this round has taken. Each step waits for messages in flight, and
  // sends the next ones. Without groups of ranks, the first step is the last one.
  static constexpr int kSteps = GroupedSum::kEnd;
  int steps() const { return grouped_ != nullptr ? grouped_->steps() : steps_; }
  void step(bool ordered, bool last_round);
  // Whether step() would return immediately.
  bool ready() const;
  // Whether no message is in flight.
  bool idle() const;
  // Begins the second exchange of a compression that has two. Call it after BucketQueue::fold() of the last round. Buckets for which
  // turns() is true take their last step only after turn().
  void turn();
  bool turns() const { return grouped_ != nullptr && grouped_->turns(); }
  // Blocks until the sum has arrived. Call it only in the last round.
  void wait();

  // Sets, between two windows, whether the following windows are compressed. The compression errors begin at zero.
  void compress(bool begins);
  // Returns the compressor; nullptr if the bucket has no compression that carries errors, or if this rank does not compress.
  Compressor* compressor() const { return grouped_ != nullptr ? grouped_->compressor() : compressor_.get(); }

  // Returns the number of ranks that compress and carry errors, if this rank does not compress because it does not lead its group;
  // otherwise 0.
  int compressors_elsewhere() const { return elsewhere_; }

  // Timing of the last round, by the clock of Collective::span().
  const ReductionTimes::Bucket& times() const { return times_; }

  // Returns the sum of a piece over ranks, with the parameter's strides. With shards, returns only the elements in this rank's part, 1-D.
  at::Tensor sum(size_t piece) const;
  // Returns the slice of a piece that is in this rank's part.
  Parameter own(size_t piece) const;

 private:
  const at::Tensor& parameter(size_t piece) const { return parameters_[layout_.pieces[piece].parameter].value; }
  at::Tensor part(const at::Tensor& flat, int rank, int ranks) const {
    return flat.narrow(0, rank * (layout_.numel / ranks), layout_.numel / ranks);
  }
  at::Tensor by_rank(const at::Tensor& flat) const;
  std::unique_ptr<Compressor> made_compressor() const;
  // Adds the received parts, in rank order, to the sum of this window's earlier rounds.
  void fold(bool ordered);
  // Sends the sum of this rank's part to all ranks; with shards only to ranks that have the same shard.
  void gather(bool ordered);
  void take_grouped();
  at::Tensor as_parameters(const at::Tensor& sum) const;
  // Whether a native sum gives each rank only its shard.
  bool scatters(bool ordered) const { return !ordered && sharding_ != Sharding::None && travel_.between_devices; }
  bool staged() const { return !sent_.is_same(flat_); }
  void make_buffers();
  void drop_buffers();

  FlatBucket layout_;
  const ParameterSet& parameters_;
  const ShardGroups& groups_;
  const RankGroups& rank_groups_;
  ProcessGroup& group_;  // the group of all ranks
  Travel travel_;
  Sharding sharding_;
  std::vector<bool> delivered_;
  size_t missing_ = 0;
  at::Tensor flat_;      // this rank's gradients, on the parameters' device; with sharded gradients only until they have been added
  at::Tensor sent_;      // the tensor that is sent: flat_ itself, or its copy in host memory or in another dtype
  at::Tensor received_;  // the parts of all ranks, during the exchange
  at::Tensor shard_;     // the sums of all ranks that have the same shard, during the gather
  at::Tensor sum_;       // sum of this rank's part, over the rounds of the window; with shards on the parameters' device
  std::unique_ptr<Collective> exchange_, gather_;
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<GroupedSum> grouped_;  // exists only with groups of ranks
  int elsewhere_ = 0;
  int steps_ = kSteps;
  bool waited_ = false;
  ReductionTimes::Bucket times_;
};

}  // namespace npu_train::detail
