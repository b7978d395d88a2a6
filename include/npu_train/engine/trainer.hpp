/// Trains a model from a configuration.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/train/callback.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

class TrainLoop;

/// Builds all objects that the configuration names, and runs them. Each Trainer is one run. Process-wide settings of libtorch (threads,
/// deterministic algorithms) are changed only during a call, and restored.
///
/// Random numbers: the order of samples, their augmentation and the initial weights of the configuration's model belong to the run, as do
/// all draws with `rng: portable`. With `rng: native`, dropout draws from libtorch's default generators, which belong to the process.
/// Between calls, these generators have the program's state. Trainers that run in several threads at once share them, so their dropout
/// masks depend on timing. `rng: portable` makes such trainings repeatable.
///
/// Threads: one thread at a time may use a trainer; a concurrent call is an Error(Usage), except request_stop(). Several trainers may run
/// in several threads, each with its own log. A moved-from trainer can be destroyed and assigned to; any other call is an Error(Usage).
class Trainer {
 public:
  /// Error(Usage) for an invalid configuration (check_config), or an incomplete description of a launch (core/launch.hpp). Opens no file.
  /// If the process was launched as one of several, the first call that builds the run joins the other processes; every rank must then make
  /// all calls.
  explicit Trainer(RunConfig config = {}, Parts parts = builtin_parts());
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Trains the configuration's model on its data.
  RunResult fit();
  /// Trains your task on your data; `val` may be null. The configuration's data set is not used. Its model is used only if `task` is null.
  RunResult fit(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val = nullptr);
  RunResult fit(std::shared_ptr<Task> task, std::shared_ptr<IterableDataset> train, std::shared_ptr<const Dataset> val = nullptr);

  /// Sets the task and the data for the calls below, without training.
  void setup(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val = nullptr);
  /// Builds the objects of the configuration, once; all other calls do this automatically.
  void setup();

  /// Renumbers the labels of the configuration's data by class name, so that they match `classes`, the classes of a trained model; the data
  /// then have these classes. Call it before setup(), which throws Error(Data) if the data have other names.
  void use_classes(std::vector<std::string> classes);

  /// Validates on this part of the configuration's data instead of the validation data; Split::Train is read without augmentation. Call it
  /// before setup(), which throws Error(Usage) if the data have no such part.
  void use_split(Split split);

  /// Returns averages over the validation data: "loss" and the task's metrics.
  Scalars validate();
  /// Returns the model's outputs for `input` [N, ...], in evaluation mode, as fp32 on the host.
  at::Tensor predict(const at::Tensor& input);
  /// Returns all outputs for the inputs of a batch, for models with several inputs or outputs.
  Outputs predict(const Batch& batch);

  /// Computes one window with one update, for a program with its own loop.
  StepReport train_step(const std::vector<Batch>& window);
  StepReport train_step(const Batch& batch) { return train_step(std::vector<Batch>{batch}); }
  /// Sets the epoch for train_step(), for schedules by epoch; fit() and train_epoch() set it themselves.
  void set_epoch(int64_t epoch);
  /// Trains for the rest of the current epoch and validates; nullopt if it was stopped before the end.
  std::optional<EpochReport> train_epoch();

  /// Continues from a checkpoint: "auto" (the newest valid one of this output.name, if any), "last", "best", or a path. Returns its path;
  /// "" if "auto" found none. Error(Checkpoint) if it cannot be used, or if another run writes to its folder: the message names that run.
  std::string resume(const std::string& which = "auto");
  /// Writes a checkpoint now; returns its path.
  std::string save_checkpoint();
  /// Saves and restores the complete state that affects the next step; `leave_out` names parts that are not restored.
  RunState state();
  void load_state(const RunState& state, const std::vector<std::string>& leave_out = {});

  /// Ends fit() after the current step, with a checkpoint. May be called from any thread.
  void request_stop() noexcept;

  /// Logs a program's own number, for example from a task or a callback; see TrainLoop::log().
  void log(const std::string& name, double value, std::optional<int64_t> step = std::nullopt);
  /// Log a text, an image, or the distribution of values; see TrainLoop::log_text().
  void log_text(const std::string& name, const std::string& text, std::optional<int64_t> step = std::nullopt);
  void log_image(const std::string& name, const at::Tensor& image, std::optional<int64_t> step = std::nullopt);
  void log_histogram(const std::string& name, const at::Tensor& values, std::optional<int64_t> step = std::nullopt);

  /// Appends a callback to those of the configuration (`callbacks`) and those added before.
  void add_callback(std::shared_ptr<Callback> callback);
  /// Adds an observer, which is not owned and must outlive the trainer.
  void add_observer(StepObserver* observer);

  const RunConfig& config() const;
  /// Returns the folder of this run's files; "" before setup(), or if no files are written.
  const std::string& run_dir() const;
  TrainLoop& loop();
  Task& task();
  /// Returns the configuration's model; Error(Usage) if the task was given in code.
  const Model& model();
  /// The training and validation data of the run.
  const DatasetPair& data();

 private:
  struct Impl;
  /// Error(Usage) if the trainer was moved from.
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
