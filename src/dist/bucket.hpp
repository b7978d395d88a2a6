// One bucket of gradients on its way through the reduction.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/flat_layout.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class Bucket {
 public:
  // How gradients travel.
  struct Travel {
    bool bf16 = false;             // fp32 gradients in bf16; with ordered sums only
    bool between_devices = false;  // without a copy in host memory
  };

  Bucket(FlatBucket layout, const ParameterSet& parameters, ProcessGroup& group, Travel travel);

  const FlatBucket& layout() const { return layout_; }

  // A new round: no piece has been delivered.
  void begin_round();
  // The gradient of a piece, copied; the parameter's own is dropped. A piece is delivered at most once a round.
  void deliver(size_t piece);
  bool delivered(size_t piece) const { return delivered_[piece]; }
  bool complete() const { return missing_ == 0; }
  // Pieces that were not delivered become -0.0, which added to a number changes none of its bits.
  void fill_missing();

  // Sends this rank's gradients: ordered, a part to each rank.
  void exchange(bool ordered);
  bool exchanged() const { return exchange_ != nullptr && exchange_->done(); }
  // Adds the parts of all ranks, in their order, to the sum of this window's earlier rounds.
  void fold(bool ordered);
  // Sends the sum of this rank's part to all, and waits for those of the others.
  void gather(bool ordered);
  void wait();

  // Of the last round, by the clock of Collective::span().
  const ReductionTimes::Bucket& times() const { return times_; }

  // The sum over ranks of a piece, with the parameter's strides.
  at::Tensor sum(size_t piece) const;

 private:
  const at::Tensor& parameter(size_t piece) const { return parameters_[layout_.pieces[piece].parameter].value; }
  at::Tensor part(const at::Tensor& flat, int rank) const;
  bool staged() const { return !sent_.is_same(flat_); }

  FlatBucket layout_;
  const ParameterSet& parameters_;
  ProcessGroup& group_;
  std::vector<bool> delivered_;
  size_t missing_ = 0;
  at::Tensor flat_;      // on the parameters' device
  at::Tensor sent_;      // what travels: flat_ itself, or its copy in host memory or in another dtype
  at::Tensor received_;  // the parts of all ranks, while they are exchanged
  at::Tensor sum_;       // of this rank's part, over the rounds of the window
  std::unique_ptr<Collective> exchange_, gather_;
  ReductionTimes::Bucket times_;
};

}  // namespace npu_train::detail
