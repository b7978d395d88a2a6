/// Where a program hangs its own work into the loop. Exceptions thrown here end fit() with an Error.
///
///   struct Plateau final : npu_train::Callback {
///     std::string name() const override { return "plateau"; }
///     npu_train::State state() const override { return {{}, {{"best", best}, {"waited", waited}}}; }
///     void load_state(const npu_train::State& state) override {
///       best = state.number("best", name());
///       waited = state.integer("waited", name());
///     }
///     ...
///   };
#pragma once

#include <optional>
#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

class TrainLoop;
struct OverflowReport;

/// All calls come from the thread that runs fit(), in the order in which the callbacks were added.
///
/// A callback with a name has its state in every checkpoint, as the part `callbacks.NAME`, and gets it back when a run is resumed, or
/// rolled back after a divergence. State of a callback that the resumed run does not have is kept: it goes to the callback of that name as
/// soon as one is added, and into the next checkpoints until then. A warning names it when the first epoch begins.
class Callback : public Stateful {
 public:
  /// Names the state: letters, digits, '_', '-' and '.', no two callbacks of a loop alike. Constant. "" for a callback without state; a
  /// state without a name is Error(Usage), before the first step.
  virtual std::string name() const { return {}; }
  /// True for a callback that writes files or prints: of several ranks only the main one calls it. Constant.
  virtual bool main_rank_only() const { return false; }
  /// The complete state of the callback, so that a resumed run continues exactly. Called before the first epoch and for each checkpoint.
  State state() const override { return {}; }
  /// The counterpart of state(). A callback that overrides only one of the two gets Error(Usage) here.
  void load_state(const State& state) override;

  virtual void on_fit_start(TrainLoop& /*loop*/) {}
  /// Once for each epoch.
  virtual void on_epoch_start(TrainLoop& /*loop*/, int64_t /*epoch*/) {}
  /// Instead of on_epoch_start where a resumed run continues inside an epoch, whose start was before the checkpoint.
  virtual void on_epoch_resume(TrainLoop& /*loop*/, int64_t /*epoch*/) {}
  /// One step late: `report` may describe the step before the newest.
  virtual void on_step_end(TrainLoop& /*loop*/, const StepReport& /*report*/) {}
  /// A validation has processed `done` batches; `total` is nothing for data of unknown length.
  virtual void on_validation_batch(TrainLoop& /*loop*/, int64_t /*done*/, std::optional<int64_t> /*total*/) {}
  /// After each validation that the configuration asks for: at the end of epochs and by trainer.val_check_interval.
  virtual void on_validation_end(TrainLoop& /*loop*/, const Scalars& /*metrics*/) {}
  /// After the validation that a run makes because max_steps or max_time stops it inside an epoch. To report it: a run that is stopped and
  /// resumed must be like one that is not, so it may change no state and no learning rate.
  virtual void on_stop_validation(TrainLoop& /*loop*/, const Scalars& /*metrics*/) {}
  /// Before the epoch's checkpoint is written.
  virtual void on_epoch_end(TrainLoop& /*loop*/, const EpochReport& /*report*/) {}
  /// A step overflowed and was explained, see TrainLoop.
  virtual void on_overflow(TrainLoop& /*loop*/, const OverflowReport& /*report*/) {}
  /// A checkpoint is on the disk: with checkpoint.async some steps after the one that it holds.
  virtual void on_checkpoint(TrainLoop& /*loop*/, const std::string& /*path*/) {}
  virtual void on_fit_end(TrainLoop& /*loop*/, const RunResult& /*result*/) {}
};

}  // namespace npu_train
