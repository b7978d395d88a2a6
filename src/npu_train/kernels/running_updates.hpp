/// Updates of running statistics by normalisation layers, for ranks that must apply equal updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu_train::detail {

/// Sets running = keep * running + added, computed in fp64 and rounded once, as batch_norm_act does for running_mean and running_var.
void move_running(const at::Tensor& running, double keep, const std::vector<double>& added);

/// In its scope, records every update of running statistics by batch_norm_act's kernels on this thread. The kernels still perform the
/// updates.
class RunningUpdates {
 public:
  struct Update {
    at::Tensor running;         ///< [C], fp32: the layer's tensor
    at::Tensor before;          ///< a copy of its values before the update
    double keep = 0;            ///< 1 - momentum
    std::vector<double> added;  ///< [C]
  };

  RunningUpdates();
  ~RunningUpdates();
  RunningUpdates(const RunningUpdates&) = delete;
  RunningUpdates& operator=(const RunningUpdates&) = delete;

  std::vector<Update>& updates() { return updates_; }
  /// Returns this thread's innermost object, or nullptr.
  static RunningUpdates* current();

 private:
  RunningUpdates* outer_;
  std::vector<Update> updates_;
};

}  // namespace npu_train::detail
