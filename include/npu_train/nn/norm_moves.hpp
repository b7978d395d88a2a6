/// How normalisation layers move their running statistics in training, for ranks that must all move them alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "npu_train/kernels/running_updates.hpp"
#include "npu_train/nn/norm_watch.hpp"

namespace npu_train::detail {

/// running = keep * before + added.
using NormMove = RunningUpdates::Update;

/// While it lives, it collects the moves of the layers that this thread runs, which still move their statistics.
class NormMoves final : private NormWatch {
 public:
  /// What was collected, in the order of the layers. `added` is exact for npu_train's own kernel. For libtorch's kernels the result alone
  /// is known, and `added` is what led to it except for rounding; waits for the device.
  std::vector<NormMove> take();

 private:
  void on_norm(const Statistics& statistics) override;

  RunningUpdates own_;
};

/// Moves `running` as the layer did, on any device. Error(Peer) if `added` has another number of channels: it comes from another rank.
void move_norm(const at::Tensor& running, double keep, const std::vector<double>& added);

}  // namespace npu_train::detail
