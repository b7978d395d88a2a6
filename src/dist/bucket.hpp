// One bucket of gradients on its way through the reduction.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/compressor.hpp"
#include "dist/flat_layout.hpp"
#include "dist/grouped_sum.hpp"
#include "dist/rank_groups.hpp"
#include "dist/shard_groups.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class Bucket {
 public:
  // How gradients travel.
  struct Travel {
    at::ScalarType dtype = at::kFloat;  // of fp32 gradients; another one with ordered sums only
    bool between_devices = false;       // without a copy in host memory
    Compression compression{};          // of fp32 gradients, where it carries errors
    bool compresses = true;             // from the first window, else from compress()
  };

  Bucket(FlatBucket layout, const ParameterSet& parameters, const ShardGroups& groups, const RankGroups& rank_groups, Travel travel,
         Sharding sharding);

  const FlatBucket& layout() const { return layout_; }

  // A new window: nothing has been added.
  void begin_window();
  // A new round: no piece has been delivered.
  void begin_round();
  // The gradient of a piece, copied; the parameter's own is dropped. A piece is delivered at most once a round.
  void deliver(size_t piece);
  bool delivered(size_t piece) const { return delivered_[piece]; }
  bool complete() const { return missing_ == 0; }
  // Pieces that were not delivered become -0.0, which added to a number changes none of its bits.
  void fill_missing();

  // Sends this rank's gradients: ordered, a part to each rank. One unit of errors of earlier windows is `unit` of these gradients.
  void exchange(bool ordered, double unit = 1);
  // How many of the steps to the sum this round has taken, of kSteps: each waits for what is on its way, and sends on. Without groups of
  // ranks the first one is the last.
  static constexpr int kSteps = GroupedSum::kEnd;
  int steps() const { return grouped_ != nullptr ? grouped_->steps() : steps_; }
  void step(bool ordered, bool last_round);
  // Whether step() returns at once.
  bool ready() const;
  // Whether nothing is on its way.
  bool idle() const;
  // When all buckets have taken two steps: a compression that exchanges twice begins the second exchange. The last step of `turns()`
  // follows.
  void turn();
  bool turns() const { return grouped_ != nullptr && grouped_->turns(); }
  // In the last round: until the sum is here.
  void wait();

  // Between two windows: whether the next ones are compressed. Errors begin at zero.
  void compress(bool begins);
  // nullptr without a compression that carries errors, and on a rank that compresses nothing.
  Compressor* compressor() const { return grouped_ != nullptr ? grouped_->compressor() : compressor_.get(); }

  // On a rank that does not lead its group: how many others compress, and carry errors; else 0.
  int compressors_elsewhere() const { return elsewhere_; }

  // Of the last round, by the clock of Collective::span().
  const ReductionTimes::Bucket& times() const { return times_; }

  // The sum over ranks of a piece, with the parameter's strides; with shards, of what this rank's part has of it, 1-D.
  at::Tensor sum(size_t piece) const;
  // What this rank's part has of a piece.
  Parameter own(size_t piece) const;

 private:
  const at::Tensor& parameter(size_t piece) const { return parameters_[layout_.pieces[piece].parameter].value; }
  at::Tensor part(const at::Tensor& flat, int rank, int ranks) const {
    return flat.narrow(0, rank * (layout_.numel / ranks), layout_.numel / ranks);
  }
  at::Tensor by_rank(const at::Tensor& flat) const;
  std::unique_ptr<Compressor> made_compressor() const;
  // Adds the parts of all ranks, in their order, to the sum of this window's earlier rounds.
  void fold(bool ordered);
  // Sends the sum of this rank's part to all; with shards, it stays where it is, unless several ranks have the same shard.
  void gather(bool ordered);
  void take_grouped();
  at::Tensor as_parameters(const at::Tensor& sum) const;
  // Whether a native sum gives each rank its shard alone.
  bool scatters(bool ordered) const { return !ordered && sharding_ != Sharding::None && travel_.between_devices; }
  bool staged() const { return !sent_.is_same(flat_); }
  void make_buffers();
  void drop_buffers();

  FlatBucket layout_;
  const ParameterSet& parameters_;
  const ShardGroups& groups_;
  const RankGroups& rank_groups_;
  ProcessGroup& group_;  // of all ranks
  Travel travel_;
  Sharding sharding_;
  std::vector<bool> delivered_;
  size_t missing_ = 0;
  at::Tensor flat_;      // on the parameters' device; with sharded gradients only until they have been added
  at::Tensor sent_;      // what travels: flat_ itself, or its copy in host memory or in another dtype
  at::Tensor received_;  // the parts of all ranks, while they are exchanged
  at::Tensor shard_;     // the sums of all ranks that have the same shard, while they are gathered
  at::Tensor sum_;       // of this rank's part, over the rounds of the window; with shards on the parameters' device
  std::unique_ptr<Collective> exchange_, gather_;
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<GroupedSum> grouped_;  // with groups of ranks
  int elsewhere_ = 0;
  int steps_ = kSteps;
  bool waited_ = false;
  ReductionTimes::Bucket times_;
};

}  // namespace npu_train::detail
