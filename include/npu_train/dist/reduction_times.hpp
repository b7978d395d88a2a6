/// Timing of one rank in a window: when its gradients were sent, and how long it waited for parameters.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace npu_train {

/// All times except `parameters` are seconds since the start of the backward pass that sends the gradients.
struct ReductionTimes {
  struct Span {
    double begin = 0, end = 0;
  };
  struct Bucket {
    int64_t bytes = 0;          ///< sent by this rank to others
    int64_t between_bytes = 0;  ///< part of `bytes` that was sent to other groups of ranks (dist.group_size)
    Span exchange{};            ///< from the completion of the bucket until the parts of all ranks, or the native sum, have arrived
    Span between{};  ///< with groups of ranks, on the first rank of each: from the arrival of its group's sum until the arrival of the sum
                     ///< of all groups
    Span gather{};   ///< from the time at which this rank has the sum of its part, or of its group, until all sums have arrived; empty if a
                     ///< single native sum is the result
  };

  double backward = 0;  ///< end of the backward pass
  double end = 0;       ///< time at which all gradients are sums over ranks
  std::vector<Bucket> buckets{};
  double parameters = 0;  ///< seconds spent waiting for parameters of other ranks: with zero3 in the passes of the window, with zero1 and
                          ///< zero2 after the optimizer's step
  int64_t parameter_bytes = 0;  ///< bytes of parameters that this rank sent to others

  /// Gradient bytes that this rank sent to others, over all buckets.
  int64_t bytes() const;
  int64_t between_bytes() const;
  /// Returns the seconds before `until` in which at least one bucket was being sent.
  double communication(double until = std::numeric_limits<double>::infinity()) const;
  /// Returns the share of the communication that overlaps the backward pass; NaN without communication.
  double hidden() const;
};

}  // namespace npu_train
