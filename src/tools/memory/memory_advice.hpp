// Proposes changes of a run with which the failed work would fit into memory.
#pragma once

#include <string>
#include <vector>

#include "memory_steps.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/run_observer.hpp"

namespace npu_train::detail {

// The size and the place of the work that did not fit.
struct FailedWork {
  Pass pass = Pass::Training;
  Batch samples;                                         // a few samples, on the host
  int64_t rows = 0, window_rows = 0, micro_batches = 1;  // samples of a micro-batch, samples of the complete window, and micro-batches
  int64_t room = 0;                                      // bytes that are available on the device
  bool exact = false;                                    // `room` counts only tensors, not the gaps of an allocator
  bool on_host = false;                                  // the window waits on the host and is not part of `resident`
  ResidentMemory resident;
};

struct MemoryChange {
  std::string overrides, peak, cost;
};

struct MemoryAdvice {
  std::vector<MemoryChange> changes;    // changes that fit, the cheapest first
  std::vector<std::string> unmeasured;  // reasons why other changes were not measured, one sentence each
  int64_t few = kFewSamples;            // samples of the smaller recorded step; the larger one has one more
};

// Returns the changes that fit. To find them, runs steps with few samples: unchanged, in lower precision, and with checkpointing. Drops the
// gradients.
MemoryAdvice changes_that_fit(const RunView& run, const FailedWork& failed);

// Drops the gradients and the cached memory of the device's allocator.
void forget_gradients(const RunView& run);

}  // namespace npu_train::detail
