/// The micro-batch that a thread works on, for observers of the step: they are called without it.
#pragma once

#include "npu_train/base/batch.hpp"

namespace npu_train {

/// While one lives, get() of this thread returns its batch: on the device of the task, before the precision casts it. TrainStep makes one
/// for each micro-batch. The batch must outlive it.
class CurrentBatch {
 public:
  explicit CurrentBatch(const Batch& batch);
  ~CurrentBatch();
  CurrentBatch(const CurrentBatch&) = delete;
  CurrentBatch& operator=(const CurrentBatch&) = delete;

  /// nullptr outside of a micro-batch.
  static const Batch* get();

 private:
  const Batch* before_;
};

}  // namespace npu_train
