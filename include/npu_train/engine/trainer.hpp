/// From a configuration to a trained model.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/train/callback.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

class TrainLoop;

/// Builds all objects that the configuration names, and runs them. One object is one run; calls come from one thread, except
/// request_stop(). Process-wide settings of libtorch (threads, deterministic algorithms) are changed only while a call runs, and restored.
///
/// Random numbers: the order of samples, their augmentation and the initial weights of the configuration's model belong to the run, as does
/// all draws with `rng: portable`. With `rng: native` dropout draws from libtorch's default generators, which belong to the
/// process: between calls they have the program's state, but trainers that run in several threads at once share them, and their masks
/// depend on timing. `rng: portable` makes such trainings repeatable.
///
/// Threads: one thread at a time uses a trainer, and a call from a second one is Error(Usage); request_stop() is allowed from any. Several
/// trainers may run in several threads, each with a log of its own. A trainer that was moved from can be destroyed and assigned to;
/// everything else is Error(Usage).
class Trainer {
 public:
  /// Error(Usage) for an invalid configuration (check_config) and an incomplete description of a launch (dist/launch.hpp). No file is
  /// opened. In a process that was launched as one of several, the first call that builds the run joins the others, and all calls are to be
  /// made on each rank.
  explicit Trainer(RunConfig config = {}, Parts parts = builtin_parts());
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Trains the configuration's model on its data.
  RunResult fit();
  /// Trains your task on your data; `val` may be null. The configuration's data set is not used, nor its model, unless `task` is null.
  RunResult fit(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val = nullptr);
  RunResult fit(std::shared_ptr<Task> task, std::shared_ptr<IterableDataset> train, std::shared_ptr<const Dataset> val = nullptr);

  /// Sets the task and the data without training, for the calls below.
  void setup(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val = nullptr);
  /// Builds the objects of the configuration, once; every other call does this automatically.
  void setup();

  /// For data of the configuration whose classes have names: their labels become the numbers of these names in `classes`, those of a
  /// trained model, and the data have these classes. Before setup(), which is an Error(Data) for data with other names.
  void use_classes(std::vector<std::string> classes);

  /// Averages over the validation data: "loss" and the task's metrics.
  Scalars validate();
  /// The model's outputs for `input` [N, ...], in evaluation mode, on the host, fp32.
  at::Tensor predict(const at::Tensor& input);
  /// All outputs for the inputs of a batch, of a model with several.
  Outputs predict(const Batch& batch);

  /// For a program that owns its loop. One window: one update.
  StepReport train_step(const std::vector<Batch>& window);
  StepReport train_step(const Batch& batch) { return train_step(std::vector<Batch>{batch}); }
  /// Sets the current epoch of train_step(), for schedules by epoch; fit() and train_epoch() set it themselves.
  void set_epoch(int64_t epoch);
  /// The rest of the current epoch and its validation; nullopt if it was stopped before its end.
  std::optional<EpochReport> train_epoch();

  /// Continues from a checkpoint: auto (the newest valid one of this output.name; having none is no error), last, best, or a path. Returns
  /// its path, "" if auto found none. Error(Checkpoint) if it cannot be used, or if another run writes to its folder: the message names
  /// that run.
  std::string resume(const std::string& which = "auto");
  /// Writes a checkpoint now; returns its path.
  std::string save_checkpoint();
  /// The complete state that affects the next step, and its counterpart; `leave_out` names parts that are not restored.
  RunState state();
  void load_state(const RunState& state, const std::vector<std::string>& leave_out = {});

  /// Ends fit() after the current step, with a checkpoint. From any thread.
  void request_stop() noexcept;

  /// Behind those of the configuration (`callbacks`) and those that were added before.
  void add_callback(std::shared_ptr<Callback> callback);
  /// Not owned; must outlive the trainer.
  void add_observer(StepObserver* observer);

  const RunConfig& config() const;
  /// The folder of this run's files; "" before setup() or if nothing is written.
  const std::string& run_dir() const;
  TrainLoop& loop();
  Task& task();
  /// The configuration's model; Error(Usage) if the task was given in code.
  const Model& model();
  /// The training and validation data of the run.
  const DatasetPair& data();

 private:
  struct Impl;
  /// Error(Usage) for a trainer that was moved from.
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
