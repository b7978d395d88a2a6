/// The batches that a loop was running when memory ran out: a window, or the batch of a validation or prediction.
#pragma once

#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"

namespace npu_train {

/// The reason for which a loop runs batches.
enum class Pass { Training, Sanity, Validation, Prediction };

/// Data of a failed step, validation or prediction, kept for a report.
struct FailedWindow {
  std::vector<Batch> batches{};  ///< loaded batches; on the host if they were not copied yet
  Phase phase = Phase::Forward;
  int micro_batch = 0;  ///< index in its window; in a validation, the number of the batch
  Pass pass = Pass::Training;
  int micro_batches = 1;  ///< number of micro-batches in the complete window
  bool on_host = false;   ///< the window is on the host, and its micro-batches are copied one by one
};

/// Returns a phase as part of a sentence: "copy to the device", "forward".
const char* work_name(Phase phase);

}  // namespace npu_train
