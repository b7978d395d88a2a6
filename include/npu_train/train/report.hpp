/// The plain numbers of a run: of one step, of one epoch and of a complete fit(). No tensors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Named numbers in a fixed order: {"loss", 0.31}, {"acc1", 91.2}.
using Scalars = std::vector<std::pair<std::string, double>>;

/// The number under `name`, or `otherwise`.
double scalar_or(const Scalars& scalars, const std::string& name, double otherwise);

/// One window. The values are read from the device one step late, so a report may describe the step before the current one.
struct StepReport {
  int64_t attempt = 0;       ///< windows processed before this one, since the start of the run
  int64_t global_step = 0;   ///< steps taken, this one included
  int64_t epoch = 0;         ///< from 0
  int64_t batches_seen = 0;  ///< micro-batches of all ranks, this window's included
  bool taken = true;         ///< false: the optimizer was skipped
  bool empty = false;        ///< why it was: true: nothing in the window counts (no target of a language model); false: an overflow
  Scalars metrics;           ///< "loss" and the task's metrics over the window
  std::vector<double>
      counts{};          ///< for each of `metrics` what it is a mean over, to average steps: weight of the loss, samples, tokens ...
  double grad_norm = 0;  ///< global norm before clipping; 0 when it is not computed
  double loss_scale = 1;
  double lr = 0;
  int64_t samples = 0;
  double weight = 0;     ///< of the loss (StepOutput::weight): of a language model the number of tokens
  double seconds = 0;    ///< wall time of the step, waiting for data included
  double data_wait = 0;  ///< of which waiting for data
};

/// One epoch.
struct EpochReport {
  int64_t epoch = 0;
  int64_t global_step = 0;
  Scalars train;  ///< averages over the epoch's taken steps; the loss by StepOutput::weight, as it was trained on
  Scalars val;    ///< empty when no validation was made
  double lr = 0;
  double loss_scale = 1;
  int64_t skipped = 0;  ///< skipped steps of this epoch
  double seconds = 0;   ///< training part
  double val_seconds = 0;
  double samples_per_second = 0;
  double weight_per_second = 0;  ///< of a language model: tokens
  double flops_per_second = 0;   ///< of the model, of all ranks, with trainer.mfu; otherwise 0
  double mfu = 0;                ///< share of the measured speed of matrix products that flops_per_second is
  double data_wait = 0;          ///< of `seconds`: waiting for data, in seconds
  int64_t peak_memory = 0;       ///< bytes on the device (host: peak resident set)
};

enum class StopReason { MaxEpochs, MaxSteps, MaxTime, EarlyStopping, Requested, FastDevRun };

/// The sentence part for a reason: "max_epochs reached".
const char* stop_reason_name(StopReason reason);

struct RunResult {
  StopReason reason = StopReason::MaxEpochs;
  std::vector<EpochReport> history;
  int64_t global_step = 0;
  int64_t attempts = 0;
  int64_t skipped_steps = 0;
  int64_t batches_seen = 0;
  Scalars final_val;            ///< last validation
  double best_score = 0;        ///< of checkpoint.monitor
  std::string run_dir;          ///< "" when nothing is written
  std::string last_checkpoint;  ///< "" when none
  std::string best_checkpoint;
};

}  // namespace npu_train
