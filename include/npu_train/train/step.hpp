/// The training step: one window of micro-batches becomes one update, or none. The order below is the contract of the library.
///
///   for each micro-batch: forward under the precision's scope -> mean loss, times its weight / R -> scaled backward
///   reduction -> times R / W, unscaled and checked for finiteness in one fused pass
///   -> one agreement of the ranks: found_inf, squared norm, sums -> clip -> optimizer step or skip -> scaler update
///   -> gradients dropped, also after a skip
///   only if taken: moving average, schedule, global_step
///
/// R is the weight of a full window over all ranks, W the weight of this one. So a scaled gradient is as large as after PyTorch's `loss /
/// accumulation_steps`, for any number of micro-batches, and the update is right for uneven and partial windows.
///
/// A skipped step changes only the scaler, the random number generators and the count of batches: parameters, optimizer state,
/// learning rate, moving average and the model's buffers stay bit-identical. (An overflowing forward writes NaN into BatchNorm's running
/// statistics, so the buffers are restored.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/average.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/overflow_report.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

struct StepOptions {
  double clip_value = 0;     ///< 0: no clipping
  bool clip_by_norm = true;  ///< false: clips each element to [-clip_value, clip_value]
  /// Receives the explanation of an overflow. The third skipped step in a row is explained; before the first taken step it is the
  /// sixteenth, because a high initial loss scale is expected to overflow. If a row of skipped steps ends the run before that, its last
  /// step is explained. If empty, nothing is explained, and no state is kept for an explanation.
  std::function<void(const OverflowReport&)> on_overflow{};
  /// Explains the first of each row of skipped steps or, in a precision that skips none, gradients that are not finite. Costs a host read
  /// per step.
  bool detect_anomaly = false;
  bool keep_start = false;  ///< keeps what undo_window() restores; costs a copy of the task's buffers per step
  /// Copies a micro-batch that is still on the host to the device, just before it is run. Empty: all batches are on the device already.
  std::function<Batch(const Batch&)> bring{};
  /// Captures forward and backward of full windows as graphs of the device (DeviceGraph), if the device supports graphs and no observer is
  /// active. The most frequent shape is captured after enough windows of it have run; windows of other shapes run eagerly. Only for tasks
  /// that are capturable().
  bool graphs = false;
  int64_t last_skip = 0;  ///< number of skipped steps in a row, at the floor of the scale, that ends the run; 0: no limit
  /// With several ranks, batch_norm normalises over the k-th micro-batches of all ranks together (SyncBatchNorm).
  bool sync_batchnorm = false;
  std::shared_ptr<const ParameterSet> parameters{};  ///< the task's parameters, which all parts of a run share; nullptr: the step asks the
                                                     ///< task for them
};

/// The result of one window, over all ranks; `packed` is still on the device.
struct StepResult {
  at::Tensor packed;       ///< fp32 [1 + 2 x metrics + 1]: loss sum, metric sums, their counts, gradient norm (0 without clipping by norm)
  double loss_weight = 1;  ///< divisor of the loss sum: the window's weight in units of a full window
  double weight = 1;       ///< weight of this window's loss in averages over windows: the sum of StepOutput::weight
  double samples = 0;      ///< without padding
  int64_t micro_batches = 0;
  bool taken = true;
  bool empty = false;  ///< skipped because no batch of the window, on any rank, has a weight above 0
};

/// An optimizer, with the parts that it does not share with the other optimizers of its task: its loss scale, and its exchange of
/// gradients. All pointers are borrowed.
struct OptimizerParts {
  std::string name{};  ///< "" if the task has one optimizer
  Precision* precision = nullptr;
  Optimizer* optimizer = nullptr;
  Strategy* strategy = nullptr;
  double base_lr = 0;  ///< its learning rate if the schedule's factor is 1
};

/// Runs windows: makes one update from a window, or the updates of several optimizers one after the other (AlternatingTask).
class WindowStep {
 public:
  virtual ~WindowStep() = default;

  /// Makes the update from `window`, whose batches are on the task's device unless StepOptions::bring is set. A rank with an empty window
  /// takes part in the update of the others. `full_weight`: weight of a full window over all ranks, equal on each rank; 0: computed as if
  /// all micro-batches had the weight of the first one. Error(Usage) for a window without a batch on any rank, or a loss that is not a
  /// scalar.
  virtual StepResult run(const std::vector<Batch>& window, double full_weight = 0) = 0;

  /// Restores gradients, buffers and all other state from before the window, after run() threw before the optimizer's phase. Needs
  /// `keep_start`. The caller restores the random number generators.
  virtual void undo_window() = 0;
  /// Phase and micro-batch in which run() ended.
  virtual Phase phase() const = 0;
  virtual int micro_batch() const = 0;

  /// Number of processed windows, including skipped ones.
  virtual int64_t attempts() const = 0;
  virtual void set_attempts(int64_t attempts) = 0;
};

namespace detail {
class KeptBuffers;
class OverflowForensics;
class Update;
class WindowGraph;
class WindowPass;
struct WindowSums;
}  // namespace detail

/// Runs windows for one optimizer. Its parts are borrowed and must outlive it; `average` may be nullptr.
class TrainStep final : public WindowStep {
 public:
  TrainStep(Task& task, Precision& precision, Optimizer& optimizer, WeightAverage* average, Strategy& strategy, const Observers& observers,
            StepOptions options);
  TrainStep(TrainStep&&) noexcept;
  ~TrainStep() override;

  StepResult run(const std::vector<Batch>& window, double full_weight = 0) override;
  void undo_window() override;
  Phase phase() const override;
  int micro_batch() const override;
  int64_t attempts() const override { return attempts_; }
  void set_attempts(int64_t attempts) override;
  /// Sets the number of the next window, if other windows have run without this step.
  void set_next(int64_t attempt) { attempts_ = attempt; }

 private:
  WindowWeight reduce(const detail::WindowSums& window);
  StepResult leave_out(StepAgreement& all, const WindowWeight& total);
  StepResult end_window(const StepAgreement& all, const at::Tensor& norm, const WindowWeight& total);
  detail::WindowSums forward_backward(const std::vector<Batch>& window, double full_weight);
  void begin_window(const std::vector<Batch>& window, double full_weight);
  at::Tensor reported(const at::Tensor& norm, const at::Tensor& sums);
  template <class Fn>
  decltype(auto) run_phase(Phase phase, Fn&& fn);

  Task& task_;
  std::shared_ptr<const ParameterSet> parameters_;  // parameters of the model
  Precision& precision_;
  Optimizer& optimizer_;
  WeightAverage* average_;
  Strategy& strategy_;
  const Observers& observers_;
  StepOptions options_;
  bool may_skip_;
  int64_t attempts_ = 0;
  bool start_kept_ = false;  // the kept buffers are those from the start of the current window
  at::Tensor no_norm_;       // reported as norm if nothing is clipped by norm
  std::unique_ptr<detail::KeptBuffers> buffers_;
  std::unique_ptr<detail::WindowPass> pass_;
  std::unique_ptr<detail::OverflowForensics> forensics_;
  std::unique_ptr<detail::WindowGraph> graph_;
  std::unique_ptr<detail::Update> update_;
};

}  // namespace npu_train
