/// The plain numbers of a run: of one step, of one epoch and of a complete fit(). No tensors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Named numbers in a fixed order: {"loss", 0.31}, {"acc1", 91.2}.
using Scalars = std::vector<std::pair<std::string, double>>;

/// Returns the number under `name`, or `otherwise`.
double scalar_or(const Scalars& scalars, const std::string& name, double otherwise);

/// Numbers of one window. The values are read from the device one step late, so a report may describe the step before the current one.
struct StepReport {
  int64_t attempt = 0;           ///< windows processed before this one, since the start of the run
  int64_t global_step = 0;       ///< steps taken, this one included
  int64_t epoch = 0;             ///< from 0
  int64_t batches_seen = 0;      ///< micro-batches of all ranks, this window's included
  bool taken = true;             ///< false: the step was skipped
  bool empty = false;            ///< why the step was skipped: true: no target in the window counts (language model); false: an overflow
  Scalars metrics;               ///< "loss" and the task's metrics over the window
  std::vector<double> counts{};  ///< divisor of each of `metrics`, for averages over steps: weight of the loss, samples, tokens ...
  double grad_norm = 0;          ///< global norm before clipping; 0 if it is not computed
  double loss_scale = 1;         ///< with several optimizers, the smallest one
  double lr = 0;
  int64_t samples = 0;
  double weight = 0;     ///< weight of the loss (StepOutput::weight); for a language model the number of tokens
  double seconds = 0;    ///< wall time of the step, waiting for data included
  double data_wait = 0;  ///< part of `seconds` spent waiting for data

  /// Returns `metrics` without those that are NaN because nothing in this window counts for them, such as the loss of an optimizer that did
  /// not step. Returns all of them if `empty`.
  Scalars measured() const;
};

/// Numbers of one epoch.
struct EpochReport {
  int64_t epoch = 0;
  int64_t global_step = 0;
  Scalars train;  ///< averages over the epoch's taken steps; the loss weighted by StepOutput::weight, as in training
  Scalars val;    ///< empty if the epoch had no validation
  double lr = 0;
  double loss_scale = 1;
  int64_t skipped = 0;  ///< skipped steps of this epoch
  double seconds = 0;   ///< wall time of the training part
  double val_seconds = 0;
  double samples_per_second = 0;
  double weight_per_second = 0;  ///< for a language model, tokens per second
  double flops_per_second = 0;   ///< FLOP/s of the model over all ranks, with trainer.mfu; otherwise 0
  double mfu = 0;                ///< flops_per_second as a share of the measured speed of matrix products
  double data_wait = 0;          ///< part of `seconds` spent waiting for data
  int64_t peak_memory = 0;       ///< bytes on the device (host: peak resident set)
};

enum class StopReason { MaxEpochs, MaxSteps, MaxTime, EarlyStopping, Requested, FastDevRun };

/// Returns a reason as part of a sentence: "trainer.max_epochs reached".
const char* stop_reason_name(StopReason reason);

struct RunResult {
  StopReason reason = StopReason::MaxEpochs;
  std::vector<EpochReport> history;
  int64_t global_step = 0;
  int64_t attempts = 0;
  int64_t skipped_steps = 0;
  int64_t batches_seen = 0;
  Scalars final_val;            ///< last validation
  double best_score = 0;        ///< best value of checkpoint.monitor
  std::string run_dir;          ///< "" if nothing is written
  std::string last_checkpoint;  ///< "" if there is none
  std::string best_checkpoint;
};

}  // namespace npu_train
