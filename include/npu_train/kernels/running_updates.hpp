/// How normalisation layers move their running statistics, for ranks that must all move them alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu_train::detail {

/// new = keep * old + added, computed in fp64 and rounded once: what batch_norm_act does to running_mean and to running_var.
void move_running(const at::Tensor& running, double keep, const std::vector<double>& added);

/// While it lives, it collects each move of running statistics by batch_norm_act's kernels in this thread. They still move.
class RunningUpdates {
 public:
  struct Update {
    at::Tensor running;         ///< [C], fp32: of the layer
    at::Tensor before;          ///< a copy from before the move
    double keep = 0;            ///< 1 - momentum
    std::vector<double> added;  ///< [C]
  };

  RunningUpdates();
  ~RunningUpdates();
  RunningUpdates(const RunningUpdates&) = delete;
  RunningUpdates& operator=(const RunningUpdates&) = delete;

  std::vector<Update>& updates() { return updates_; }
  /// That of this thread; nullptr if none lives.
  static RunningUpdates* current();

 private:
  RunningUpdates* outer_;
  std::vector<Update> updates_;
};

}  // namespace npu_train::detail
