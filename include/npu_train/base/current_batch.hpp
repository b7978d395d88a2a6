/// The micro-batch that the calling thread processes, for observers of the step, whose functions do not receive it.
#pragma once

#include "npu_train/base/batch.hpp"

namespace npu_train {

/// During its lifetime, get() on this thread returns `batch`: on the device of the task, before the precision casts it. TrainStep creates
/// one for each micro-batch. The batch must outlive it.
class CurrentBatch {
 public:
  explicit CurrentBatch(const Batch& batch);
  ~CurrentBatch();
  CurrentBatch(const CurrentBatch&) = delete;
  CurrentBatch& operator=(const CurrentBatch&) = delete;

  /// Returns nullptr outside of a micro-batch.
  static const Batch* get();

 private:
  const Batch* before_;
};

}  // namespace npu_train
