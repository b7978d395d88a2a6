/// The window, or the batch of another pass, in which memory ran out.
#pragma once

#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"

namespace npu_train {

/// What a loop runs batches for.
enum class Pass { Training, Sanity, Validation, Prediction };

/// What is kept of a failed step, validation or prediction for a report.
struct FailedWindow {
  std::vector<Batch> batches{};  ///< those that there were; on the host if they were not copied yet
  Phase phase = Phase::Forward;
  int micro_batch = 0;  ///< in its window; of a validation the number of the batch
  Pass pass = Pass::Training;
  int micro_batches = 1;  ///< of the complete window
  bool on_host = false;   ///< its micro-batches are copied one by one
};

/// A phase in a sentence: "copy to the device", "forward".
const char* work_name(Phase phase);

}  // namespace npu_train
