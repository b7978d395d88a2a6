/// When the gradients of a window travelled, on one rank, and how long it waited for parameters.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace npu_train {

/// All times but that of parameters are seconds since the beginning of the backward pass that sends the gradients.
struct ReductionTimes {
  struct Span {
    double begin = 0, end = 0;
  };
  struct Bucket {
    int64_t bytes = 0;          ///< that this rank sent to others
    int64_t between_bytes = 0;  ///< those of them that it sent to other groups of ranks (dist.group_size)
    Span exchange{};            ///< from a complete bucket until the parts of all ranks are here, or until the native sum is
    Span between{};             ///< with groups of ranks, on the first one of each: from the sum of its group until that of all is here
    Span gather{};              ///< from the sum of this rank's part, or group, until that of all is here; empty with one native sum
  };

  double backward = 0;  ///< end of the backward pass
  double end = 0;       ///< all gradients are sums over ranks
  std::vector<Bucket> buckets{};
  double parameters = 0;  ///< seconds of waiting for parameters of other ranks: with zero3 in the passes of the window, with zero1 and
                          ///< zero2 after the optimizer's step
  int64_t parameter_bytes = 0;  ///< of parameters, that this rank sent to others

  /// Of gradients.
  int64_t bytes() const;
  int64_t between_bytes() const;
  /// Seconds before `until` in which at least one bucket was on its way.
  double communication(double until = std::numeric_limits<double>::infinity()) const;
  /// Share of the communication that ran while the backward pass computed; NaN if nothing travelled.
  double hidden() const;
};

}  // namespace npu_train
