/// Where a program hangs its own work into the loop. Exceptions thrown here end fit() with an Error.
#pragma once

#include <optional>

#include "npu_train/train/report.hpp"

namespace npu_train {

class TrainLoop;
struct OverflowReport;

/// All calls come from the thread that runs fit(), in the order in which the callbacks were added.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_fit_start(TrainLoop& /*loop*/) {}
  virtual void on_epoch_start(TrainLoop& /*loop*/, int64_t /*epoch*/) {}
  /// One step late: `report` may describe the step before the newest.
  virtual void on_step_end(TrainLoop& /*loop*/, const StepReport& /*report*/) {}
  /// A validation has processed `done` batches; `total` is nothing for data of unknown length.
  virtual void on_validation_batch(TrainLoop& /*loop*/, int64_t /*done*/, std::optional<int64_t> /*total*/) {}
  virtual void on_validation_end(TrainLoop& /*loop*/, const Scalars& /*metrics*/) {}
  /// Before the epoch's checkpoint is written.
  virtual void on_epoch_end(TrainLoop& /*loop*/, const EpochReport& /*report*/) {}
  /// A step overflowed and was explained, see TrainLoop.
  virtual void on_overflow(TrainLoop& /*loop*/, const OverflowReport& /*report*/) {}
  /// A checkpoint is on the disk: with checkpoint.async some steps after the one that it holds.
  virtual void on_checkpoint(TrainLoop& /*loop*/, const std::string& /*path*/) {}
  virtual void on_fit_end(TrainLoop& /*loop*/, const RunResult& /*result*/) {}
};

}  // namespace npu_train
