// The communication between ranks in measured steps.
#pragma once

#include <vector>

#include "npu_train/dist/reduction_times.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train::detail {

struct Reductions {
  std::vector<ReductionTimes> all{};  // one per step

  // Adds sent_bytes and, with groups of ranks, between_bytes of the last step, and means over the steps: communication_ms; parameters_ms
  // (waiting for sharded parameters); exposed_ms and share_exposed (time for which the step waited for gradients or parameters);
  // share_hidden (of the gradients' communication). `steps`: the times of these steps.
  void describe(BenchRow& row, const Samples& steps) const;
};

}  // namespace npu_train::detail
