/// Updates of running statistics by normalisation layers in training, for ranks that must apply equal updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "npu_train/kernels/running_updates.hpp"
#include "npu_train/nn/norm_watch.hpp"

namespace npu_train::detail {

/// An update: running = keep * before + added.
using NormMove = RunningUpdates::Update;

/// In its scope, records every update of running statistics on this thread. The layers still apply them.
class NormMoves final : private NormWatch {
 public:
  /// Returns the recorded updates in layer order, and waits for the device. `added` is exact for npu_train's kernel. libtorch's kernels
  /// return only the result, from which `added` is computed, exact up to rounding.
  std::vector<NormMove> take();

 private:
  void on_norm(const Statistics& statistics) override;

  RunningUpdates own_;
};

/// Applies an update to `running` as the layer did, on any device. Error(Peer) if `added` (of another rank) has a different number of
/// channels.
void move_norm(const at::Tensor& running, double keep, const std::vector<double>& added);

}  // namespace npu_train::detail
