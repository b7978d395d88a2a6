/// Hooks with which a program adds its own work to the loop. Exceptions thrown here end fit() with an Error.
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

#include <ATen/core/Tensor.h>

#include "npu_train/base/state.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

class TrainLoop;
struct OverflowReport;

/// Base class of callbacks. All calls come from the thread that runs fit(), in the order in which the callbacks were added.
///
/// Every checkpoint contains the state of each callback that has a name, as the part `callbacks.NAME`. The callback receives it when a run
/// is resumed, or rolled back after a divergence. If the resumed run has no callback of that name, the state is kept and saved again in the
/// next checkpoints, until a callback of that name is added and receives it. A warning names such a state when the first epoch begins.
class Callback : public Stateful {
 public:
  /// Returns the name under which the state is saved: letters, digits, '_', '-' and '.', unique in a loop, and constant. "" for a callback
  /// without state; a state without a name is Error(Usage) before the first step.
  virtual std::string name() const { return {}; }
  /// True for a callback that writes files or prints: of several ranks, only the main rank calls it. The value must not change.
  virtual bool main_rank_only() const { return false; }
  /// Returns the complete state, so that a resumed run continues exactly. Called before the first epoch and for each checkpoint.
  State state() const override { return {}; }
  /// Restores what state() returned; override both or neither. The default throws Error(Usage) for a state that is not empty.
  void load_state(const State& state) override;

  virtual void on_fit_start(TrainLoop& /*loop*/) {}
  /// Called once for each epoch.
  virtual void on_epoch_start(TrainLoop& /*loop*/, int64_t /*epoch*/) {}
  /// Called instead of on_epoch_start if a resumed run continues inside an epoch that began before the checkpoint.
  virtual void on_epoch_resume(TrainLoop& /*loop*/, int64_t /*epoch*/) {}
  /// Called one step late: `report` may describe the step before the newest.
  virtual void on_step_end(TrainLoop& /*loop*/, const StepReport& /*report*/) {}
  /// Called after each batch of a validation: `done` batches are processed; `total` is nullopt for data of unknown length.
  virtual void on_validation_batch(TrainLoop& /*loop*/, int64_t /*done*/, std::optional<int64_t> /*total*/) {}
  /// Called after each validation that the configuration schedules: at the end of epochs and by trainer.val_check_interval.
  virtual void on_validation_end(TrainLoop& /*loop*/, const Scalars& /*metrics*/) {}
  /// Called after the extra validation that a run makes if max_steps or max_time stops it inside an epoch, and after the validation of the
  /// mean of the last checkpoints. Only for reports: a run that is stopped and resumed must equal one that is not, so this call must not
  /// change any state or learning rate.
  virtual void on_stop_validation(TrainLoop& /*loop*/, const Scalars& /*metrics*/) {}
  /// Called before the epoch's checkpoint is written.
  virtual void on_epoch_end(TrainLoop& /*loop*/, const EpochReport& /*report*/) {}
  /// Called when a step has overflowed and the overflow was explained; see StepOptions::on_overflow.
  virtual void on_overflow(TrainLoop& /*loop*/, const OverflowReport& /*report*/) {}
  /// Called for each value that TrainLoop::log() gets; `step` is the number of steps to which it belongs.
  virtual void on_log(TrainLoop& /*loop*/, const std::string& /*name*/, double /*value*/, int64_t /*step*/) {}
  /// Called for each text, image and histogram that TrainLoop::log_text(), log_image() and log_histogram() get.
  virtual void on_log_text(TrainLoop& /*loop*/, const std::string& /*name*/, const std::string& /*text*/, int64_t /*step*/) {}
  virtual void on_log_image(TrainLoop& /*loop*/, const std::string& /*name*/, const at::Tensor& /*image*/, int64_t /*step*/) {}
  virtual void on_log_histogram(TrainLoop& /*loop*/, const std::string& /*name*/, const at::Tensor& /*values*/, int64_t /*step*/) {}
  /// Called when a checkpoint is on the disk. With checkpoint.async, the call comes some steps after the step whose state the checkpoint
  /// contains.
  virtual void on_checkpoint(TrainLoop& /*loop*/, const std::string& /*path*/) {}
  virtual void on_fit_end(TrainLoop& /*loop*/, const RunResult& /*result*/) {}
};

}  // namespace npu_train
