/// The loop over steps and epochs, with validation, checkpoints and stopping. The Trainer builds it from parts; a host program that owns
/// its loop calls train_step() or train_epoch() itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/clock.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/optim/schedule.hpp"
#include "npu_train/train/callback.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "npu_train/train/failed_window.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/step.hpp"

namespace npu_train {

/// The parts on which a loop runs, owned by its builder; `average`, `val_loader` and `store` may be nullptr. If there are several
/// optimizers, AverageOptions::of names the one whose parameters `average` averages.
struct LoopParts {
  Task* task = nullptr;
  /// Parameters of the task, created once and shared by all parts of a run; nullptr: the loop asks the task for them.
  std::shared_ptr<const ParameterSet> parameters{};
  Precision* precision = nullptr;
  Optimizer* optimizer = nullptr;
  const LrSchedule* schedule = nullptr;
  double base_lr = 0;
  WeightAverage* average = nullptr;
  Strategy* strategy = nullptr;
  /// The optimizers of an AlternatingTask, in its order. The loop sets precision, optimizer, base_lr and strategy above to those of the
  /// first one. If the list is empty, the loop fills it with one optimizer that has those four members.
  std::vector<OptimizerParts> optimizers{};
  Loader* train_loader = nullptr;
  Loader* val_loader = nullptr;
  CheckpointStore* store = nullptr;
  Device device;
  ConfigNode config;  ///< resolved configuration, saved with every checkpoint
  std::string model_name;
  std::string classes;          ///< names of the classes, one per line
  double flops_per_sample = 0;  ///< FLOP of forward and backward; 0: not reported
  double product_flops = 0;     ///< measured speed of matrix products, summed over the devices of all ranks, in FLOP/s
  std::shared_ptr<const Clock> clock = steady_clock();
  std::shared_ptr<std::atomic<bool>> stop = std::make_shared<std::atomic<bool>>(false);  ///< true: fit() ends after the current step

  /// Returns the smallest loss scale of the optimizers, which reaches the floor first.
  double loss_scale() const;
};

/// Progress of a training. Checkpoints contain all of it.
struct LoopPosition {
  int64_t epoch = 0;           ///< current epoch, from 0
  int64_t batch_in_epoch = 0;  ///< micro-batches of this epoch that all ranks have consumed; the next window begins there, on any number of
                               ///< ranks
  int64_t global_step = 0;
  int64_t batches_seen = 0;  ///< micro-batches of all ranks and epochs
  int64_t skipped = 0;
  int64_t validated_step = -1;
  int64_t validated_batch = -1;  ///< batch_in_epoch of this epoch's last validation by trainer.val_check_interval; -1: none yet
  int64_t effective_batch = 0;   ///< samples of a full window over all ranks; 0: not known
};

/// The training loop. Each of its jobs, except the step, is a part with its own state; src/train/loop_jobs.hpp defines their order.
class TrainLoop {
 public:
  TrainLoop(LoopParts parts, TrainerOptions options, CheckpointOptions checkpoint, EarlyStoppingOptions early_stopping);
  ~TrainLoop();

  /// Trains until a limit, early stopping or request_stop(). Error(Diverged) if the loss is not finite, or if steps keep overflowing at the
  /// floor of the loss scale; the last good checkpoint is kept, and the broken state is written to `diverged/`.
  RunResult fit();

  /// Trains for the rest of the current epoch. Returns nullopt if the epoch was stopped before its end; call fit() or train_epoch() again
  /// to continue.
  std::optional<EpochReport> train_epoch();

  /// Trains on one window, whose batches may be on any device; the report describes this step, not the one before.
  StepReport train_step(const std::vector<Batch>& window);

  /// Sets the epoch for train_step(), for schedules by epoch; train_epoch() and fit() do not need it. Error(Usage) if it is negative.
  void set_epoch(int64_t epoch);

  /// Logs a program's own number under `name`: it becomes a column in metrics.csv (rows with the phase "log") and a curve in TensorBoard,
  /// and callbacks get on_log(). `step`: the number of steps to which the value belongs, by default global_step(); on_step_end() should
  /// pass the step of its report. With several ranks, files have the values of the main rank. Error(Usage) for a name with characters other
  /// than letters, digits, '_', '-', '.' and '/', for the names epoch, step and phase, and for a negative step.
  void log(const std::string& name, double value, std::optional<int64_t> step = std::nullopt);

  /// Logs a text (shown as Markdown), an image, or the distribution of values under `name`, for loggers that support them (output.logger:
  /// tensorboard, mlflow). `image`: [channels, height, width] with 1, 3 or 4 channels, or [height, width]; uint8, or floating point from 0
  /// to 1. Error(Usage) for an image of another form, and for values without elements. In all other respects, like log().
  void log_text(const std::string& name, const std::string& text, std::optional<int64_t> step = std::nullopt);
  void log_image(const std::string& name, const at::Tensor& image, std::optional<int64_t> step = std::nullopt);
  void log_histogram(const std::string& name, const at::Tensor& values, std::optional<int64_t> step = std::nullopt);

  /// Sets a factor on the schedule's learning rate, initially 1, from the next step on. Callbacks must change the rate this way, because
  /// the schedule sets the optimizer's own rate at every step. The factor is kept until it is set again, and is saved in checkpoints and
  /// restored from them; a rollback (trainer.on_divergence) multiplies it by 0.1. Error(Usage) unless it is finite and at least 0.
  void set_lr_factor(double factor);
  double lr_factor() const;

  /// Updates the set of trained parameters. Call it after freezing or unfreezing parameters (requires_grad). From the next step on, exactly
  /// the parameters that require a gradient are trained. Parameters that stay trained keep their optimizer state, others begin with a new
  /// one. Checkpoints save and restore which parameters are trained. Error(Usage) if none is left, and with trainer.strategy=zero1 to
  /// zero3.
  void refresh_parameters();

  /// Returns averages over the validation data of all ranks ("loss" first), with the averaged weights if there are any. Every rank calls
  /// it.
  Scalars validate();
  /// Like validate(), on the data of any loader and on at most `limit` batches (-1: all).
  Scalars evaluate(Loader& loader, int64_t limit = -1);

  /// Ends fit() after the current step or validation batch, with a checkpoint. May be called from any thread and, because it is one atomic
  /// store, from a signal handler.
  void request_stop() noexcept { parts_.stop->store(true, std::memory_order_relaxed); }

  /// Ends fit() when this number of steps has been taken, instead of trainer.max_steps; schedules keep the run's original length.
  void set_max_steps(int64_t steps) { options_.max_steps = steps; }

  /// state() returns all state that changes the next step, and load_state() restores it. With trainer.strategy=zero1 to zero3, every rank
  /// must call state(). load_state(): Error(Checkpoint) if the state does not fit; `leave_out` names parts to skip. The state of a callback
  /// is the part `callbacks.NAME`, see Callback.
  RunState state() const;
  void load_state(const RunState& state, const std::vector<std::string>& leave_out = {});
  /// Loads the state from the folder of a checkpoint. A rank that has slices of the state reads only those.
  void load_checkpoint(const std::string& dir);

  /// Writes a checkpoint now, and returns its path; "" without a store. Error(Diverged) if a parameter is not finite.
  std::string save_checkpoint();
  /// Writes a checkpoint. With checkpoint.async, returns when the state is copied; callbacks are notified when the file is written, and a
  /// disk error is thrown by the next step, the next save, or the end of the run.
  void begin_checkpoint();

  /// Returns the model's first output for `input` [N, ...], in evaluation mode and with the averaged weights if the run has any. The result
  /// is fp32 on the host. Every rank must call it with trainer.strategy=zero3, and with zero1 or zero2 if the run has averaged weights.
  at::Tensor predict(const at::Tensor& input);
  /// Returns all outputs for the inputs of a batch.
  Outputs predict(const Batch& batch);

  /// Sets where checkpoints are written from now on; not owned.
  void set_store(CheckpointStore* store) { parts_.store = store; }
  /// Adds a callback after the existing ones; it receives the loaded state for its name. Error(Usage) if one has the same name.
  void add_callback(std::shared_ptr<Callback> callback);
  Observers& observers() { return observers_; }

  /// Returns the window of the step, validation or prediction that has just ended with Error(OutOfMemory), and releases it from the loop.
  /// The window may hold memory of the device. nullopt if there is none.
  std::optional<FailedWindow> take_failed_window();
  /// Returns the maximum number of samples in a micro-batch if trainer.on_oom: retry has reduced it; 0: the loader's batches are not
  /// divided.
  int64_t micro_batch_limit() const;

  int64_t epoch() const { return at_.epoch; }
  int64_t global_step() const { return at_.global_step; }
  int64_t batches_seen() const { return at_.batches_seen; }
  int64_t skipped_steps() const { return at_.skipped; }
  /// Returns global_step() at the last scheduled validation (not one at a stop); -1 before the first.
  int64_t validated_step() const { return at_.validated_step; }
  /// Returns the number of windows in an epoch, the same on every rank; nullopt for data of unknown length.
  std::optional<int64_t> windows_per_epoch() const;
  /// Returns the number of windows of the current epoch that were processed, including those before a resume.
  int64_t windows_done() const;
  const TrainerOptions& options() const { return options_; }
  const LoopParts& parts() const { return parts_; }

 private:
  std::unique_ptr<WindowStep> make_step();
  bool at_floor() const;
  RunState state_with(StateSlices* own) const;  // `own` gets this rank's shards; nullptr: joins all shards
  struct Jobs;
  template <class Fn>
  void call_back(Fn&& fn);
  StepResult step(std::vector<Batch>& window);
  void describe(StepReport& report, const StepResult& result) const;
  void finish_pending();
  void begin_epoch();
  bool end_epoch(EpochReport& report);
  bool validates() const;
  bool validates_epoch() const;
  bool validate_inside_epoch();
  void sanity_check();
  std::optional<Scalars> run_validation(Loader& loader, int64_t limit, Pass pass, bool stoppable);
  std::optional<Scalars> measure_weights(bool stoppable);
  std::optional<Scalars> validate_weights(bool stoppable);
  void validate_at_stop(bool stoppable);
  bool take_statistics(bool stoppable);
  void average_checkpoints();
  void note(const Scalars& train, const Scalars& val);
  void note_overflow(const OverflowReport& report);
  void note_checkpoint(const std::string& path);
  CheckpointMeta meta() const;
  bool roll_back(const Error& cause);

  LoopParts parts_;
  TrainerOptions options_;
  CheckpointOptions checkpoint_;
  Observers observers_;
  LoopPosition at_;
  bool epoch_open_ = false;  ///< the loader is in the current epoch
  Scalars last_val_;
  std::unique_ptr<WindowStep> step_;
  std::unique_ptr<Jobs> jobs_;
};

}  // namespace npu_train
