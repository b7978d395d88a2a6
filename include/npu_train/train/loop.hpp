/// The loop over steps and epochs: validation, checkpoints, stopping. Built from parts by the Trainer; a host program that owns its loop
/// calls train_step() or train_epoch() itself.
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
#include "npu_train/train/options.hpp"
#include "npu_train/train/step.hpp"

namespace npu_train {

/// What the loop runs on. Owned by whoever builds it; `ema`, `val_loader` and `store` may be nullptr.
struct LoopParts {
  Task* task = nullptr;
  Precision* precision = nullptr;
  Optimizer* optimizer = nullptr;
  const LrSchedule* schedule = nullptr;
  double base_lr = 0;
  Ema* ema = nullptr;
  Strategy* strategy = nullptr;
  Loader* train_loader = nullptr;
  Loader* val_loader = nullptr;
  CheckpointStore* store = nullptr;
  Device device;
  ConfigNode config;  ///< resolved, saved with every checkpoint
  std::string model_name;
  std::string classes;  ///< names of the classes, one a line
  std::shared_ptr<const Clock> clock = steady_clock();
  std::shared_ptr<std::atomic<bool>> stop = std::make_shared<std::atomic<bool>>(false);  ///< true asks fit() to end after the current step
};

/// What a loop runs batches for.
enum class Pass { Training, Sanity, Validation, Prediction };

/// The window, or the batch of another pass, in which memory ran out.
struct FailedWindow {
  std::vector<Batch> batches{};  ///< those that there were; on the host where they were not copied yet
  Phase phase = Phase::Forward;
  int micro_batch = 0;  ///< in its window; of a validation the number of the batch
  Pass pass = Pass::Training;
  int micro_batches = 1;  ///< of the whole window
  bool on_host = false;   ///< its micro-batches are copied one by one
};

/// A phase in a sentence: "copy to the device", "forward".
const char* work_name(Phase phase);

class TrainLoop {
 public:
  TrainLoop(LoopParts parts, TrainerOptions options, CheckpointOptions checkpoint, EarlyStoppingOptions early_stopping);
  ~TrainLoop();

  /// Trains until a limit, early stopping or request_stop(). Error(Diverged) when the loss is not finite or the loss scale sits at its
  /// floor; the last good checkpoint stays and the broken state goes to `diverged/`.
  RunResult fit();

  /// The rest of the current epoch. nullopt: stopped on the way (then call fit() or train_epoch() again to go on).
  std::optional<EpochReport> train_epoch();

  /// One window, on any device; the report is of this very step.
  StepReport train_step(const std::vector<Batch>& window);

  /// Says which epoch train_step() is in, for schedules by epoch; a program that calls train_epoch() or fit() needs it not. Error(Usage)
  /// when negative.
  void set_epoch(int64_t epoch);

  /// A factor on the schedule's learning rate, 1 at first, from the next step on: what a callback changes the rate by, since the schedule
  /// sets the optimizer's own rate at every step. It holds until it is set again, goes into checkpoints and comes back with them; a
  /// rollback (trainer.on_divergence) multiplies it by a tenth. Error(Usage) unless it is finite and at least 0.
  void set_lr_factor(double factor);
  double lr_factor() const { return lr_factor_; }

  /// To be called after parameters were frozen or thawed (requires_grad): from the next step on exactly those are trained that require a
  /// gradient. Those that go on keep their state, others begin with a fresh one. Which are trained goes into checkpoints and comes back
  /// with them. Error(Usage) where none is left.
  void refresh_parameters();

  /// Averages over the validation data ("loss" first), with the EMA's weights where there is one.
  Scalars validate();
  /// The same over any loader, at most `limit` batches (-1: all).
  Scalars evaluate(Loader& loader, int64_t limit = -1);

  /// Ends fit() after the current step, or batch of a validation, with a checkpoint. From any thread or, being one atomic store, from a
  /// signal handler.
  void request_stop() noexcept { parts_.stop->store(true, std::memory_order_relaxed); }

  /// Ends fit() when so many steps were taken, whatever trainer.max_steps says; schedules keep the length that the run was built for.
  void set_max_steps(int64_t steps) { options_.max_steps = steps; }

  /// Everything that changes the next step. load_state: Error(Checkpoint) when it does not fit; `leave_out` names parts to skip.
  RunState state() const;
  void load_state(const RunState& state, const std::vector<std::string>& leave_out = {});

  /// Writes a checkpoint now; refuses (Error(Diverged)) when a parameter is not finite. Returns its path, "" without a store.
  std::string save_checkpoint();
  /// The same beside the training where checkpoint.async says so: returns when the state is copied, and callbacks hear of the file when it
  /// is written. A failure of the disk comes with the next step, save or end.
  void begin_checkpoint();

  /// What the model gives for `input` [N, ...], in evaluation mode and with the EMA's weights where there are any; fp32 on the host.
  at::Tensor predict(const at::Tensor& input);

  /// Where checkpoints go from now on; not owned.
  void set_store(CheckpointStore* store) { parts_.store = store; }
  void add_callback(std::shared_ptr<Callback> callback) { callbacks_.push_back(std::move(callback)); }
  Observers& observers() { return observers_; }

  /// Of the step, validation or prediction that just ended by Error(OutOfMemory); nullopt otherwise. Gives it away: it may hold memory of
  /// the device.
  std::optional<FailedWindow> take_failed_window() { return std::exchange(failed_, std::nullopt); }
  /// Samples of a micro-batch at most, after trainer.on_oom: retry made them smaller; 0: as the loader gives them.
  int64_t micro_batch_limit() const { return micro_batch_limit_; }

  int64_t epoch() const { return epoch_; }
  int64_t global_step() const { return global_step_; }
  int64_t batches_seen() const { return batches_seen_; }
  int64_t skipped_steps() const { return skipped_; }
  /// global_step() when the weights were validated last; -1 before the first time.
  int64_t validated_step() const { return validated_step_; }
  /// Windows of an epoch, nullopt for data of unknown length.
  std::optional<int64_t> windows_per_epoch() const;
  /// Windows of the current epoch that were processed, those before a resume included.
  int64_t windows_done() const { return (batch_in_epoch_ + options_.accumulate_grad_batches - 1) / options_.accumulate_grad_batches; }
  const TrainerOptions& options() const { return options_; }
  const LoopParts& parts() const { return parts_; }

 private:
  struct Pending;
  struct EpochSums;
  struct Evaluation;
  struct ValidationSums;
  bool captures_graphs() const;
  template <class Fn>
  void call_back(Fn&& fn) {
    if (callbacks_.empty()) return;
    observers_.run(Phase::Callbacks, step_->attempts(), 0, [&] {
      for (const auto& c : callbacks_) fn(*c);
    });
  }
  std::optional<Batch> next_batch();
  void fill_overfit();
  bool validates() const;
  void check_monitors() const;
  std::vector<Batch> next_window(double& data_wait);
  StepResult step(std::vector<Batch>& window);
  StepResult run_window(std::vector<Batch>& window);
  double full_weight(size_t batches) const;
  void leave_on_host(std::vector<Batch>& window);
  bool shrink_micro_batches(const std::vector<Batch>& window, const Error& failure);
  void copy_newest(std::vector<Batch>& window, int64_t micro_batches);
  void note_out_of_memory(FailedWindow failed);
  void validate_batch(const Batch& batch, Phase& phase, ValidationSums& sums);
  std::optional<Scalars> run_validation(Loader& loader, int64_t limit, Pass pass, bool stoppable);
  std::optional<Scalars> validate_weights(bool stoppable);
  StepReport read(const Pending& pending) const;
  void finish_pending(EpochSums& sums);
  void check_divergence(const StepReport& report, bool at_floor);
  void apply_lr();
  std::string trained_names() const;
  void train_only(const std::string& names);
  void warn_of_untrained();
  bool step_limit_reached();
  bool limits_reached();
  void begin_epoch();
  void sanity_check();
  bool end_epoch(EpochReport& report);
  CheckpointMeta meta() const;
  void finish_checkpoint(bool wait = true);
  void check_finite();
  void note_saved();
  bool parameters_finite() const;
  [[noreturn]] void diverged(const std::string& cause, const std::string& remedy);
  bool roll_back(const Error& cause);
  void note_validation(const Scalars& val);
  void note_overflow(const OverflowReport& report);

  LoopParts parts_;
  TrainerOptions options_;
  CheckpointOptions checkpoint_;
  EarlyStoppingOptions early_;
  Observers observers_;
  std::unique_ptr<TrainStep> step_;
  std::vector<std::shared_ptr<Callback>> callbacks_;

  int64_t epoch_ = 0;           ///< current epoch
  int64_t batch_in_epoch_ = 0;  ///< micro-batches of it consumed
  bool epoch_open_ = false;     ///< the loader stands in the current epoch
  int64_t global_step_ = 0;
  int64_t batches_seen_ = 0;
  int64_t skipped_ = 0;
  int64_t validated_step_ = -1;
  int64_t attempts_at_start_ = 0;     ///< of the current fit()
  int64_t saved_at_ = 0;              ///< batches_seen_ of the newest checkpoint
  bool saved_without_score_ = false;  ///< it was written before its weights were validated
  int64_t skip_streak_ = 0;
  std::string overflow_cause_, overflow_remedy_;  ///< of the row of skipped steps that is under way, once it is explained
  int64_t rollbacks_ = 0;
  double lr_factor_ = 1;            ///< set by callbacks, lowered by rollbacks
  std::optional<double> lr_set_{};  ///< what the optimizer's rate was last set to
  bool lr_warned_ = false, untrained_warned_ = false;
  std::string trained_at_start_{};  ///< parameters that were trained before the first refresh_parameters(); "" before it
  int64_t micro_batch_limit_ = 0;
  bool copies_late_ =
      false;  ///< windows stay on the host, each micro-batch is copied just before it is run: on_oom=retry after a failed copy
  std::optional<FailedWindow> failed_;
  double best_score_;
  int64_t without_improvement_ = 0;
  double early_best_;
  Scalars last_val_;
  double last_score_;
  std::optional<StopReason> stop_;
  double started_ = 0;
  std::vector<Batch> overfit_;
  std::unique_ptr<EpochSums> sums_;
  std::unique_ptr<Pending> pending_;
};

}  // namespace npu_train
