// What travelled between ranks in measured steps.
#pragma once

#include <vector>

#include "npu_train/dist/reduction_times.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train::detail {

struct Reductions {
  std::vector<ReductionTimes> all{};  // of the steps

  // sent_bytes and, with groups of ranks, between_bytes (of the last step), and means over the steps: communication_ms, parameters_ms
  // (waiting for parameters in shards), exposed_ms and share_exposed (of gradients and parameters, what the step waited for), share_hidden
  // (of gradients). `steps` took these seconds.
  void describe(BenchRow& row, const Samples& steps) const;
};

}  // namespace npu_train::detail
