// Changes of a run under which the failed work would fit into memory.
#pragma once

#include <string>
#include <vector>

#include "memory_steps.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/run_observer.hpp"

namespace npu_train::detail {

// What failed, in numbers.
struct FailedWork {
  Pass pass = Pass::Training;
  Batch samples;                                         // a few, on the host
  int64_t rows = 0, window_rows = 0, micro_batches = 1;  // of a micro-batch; of the complete window
  int64_t room = 0;                                      // bytes that the device can give
  bool exact = false;                                    // they are those of tensors, without an allocator's gaps
  bool on_host = false;                                  // the window waits there; `resident` has none of it
  ResidentMemory resident;
};

struct MemoryChange {
  std::string overrides, peak, cost;
};

struct MemoryAdvice {
  std::vector<MemoryChange> changes;    // that fit, the cheapest first
  std::vector<std::string> unmeasured;  // why others are not known, a sentence each
  int64_t few = kFewSamples;            // samples of the smaller step that the prediction is from; the larger one has one more
};

// Runs steps of few samples as they are, in lower precision, and with checkpointing. Gradients are dropped.
MemoryAdvice changes_that_fit(const RunView& run, const FailedWork& failed);

// Drops the gradients and what the device's allocator keeps.
void forget_gradients(const RunView& run);

}  // namespace npu_train::detail
