// Training steps and predictions of a configuration on one random batch.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train::detail {

/// A run that writes no files, has no end and no data set, and keeps its learning rate.
class BenchStep {
 public:
  /// Uses equal weights and batches for equal configurations and sizes.
  BenchStep(RunConfig config, const Parts& parts, int64_t batch_size);

  /// Runs one update; returns when the device has finished.
  void train();
  /// Runs one prediction in evaluation mode.
  void predict();
  /// Runs a step and returns its loss.
  double loss();
  /// Returns the loss of the batch in evaluation mode.
  double validation_loss();
  /// Returns the peak bytes of a forward and backward pass, minus the bytes in use before it; -1 if the device does not report them.
  int64_t activation_bytes();

  /// Adds speed, latency and memory, derived from the times of steps.
  void describe(BenchRow& row, const Samples& samples, double gemm_flops) const;
  /// Adds the bytes before the first step and at the peak, and their difference.
  void add_memory(BenchRow& row) const;
  /// Runs a step and returns the bytes that its operators read and write, summed over operators.
  int64_t bytes_moved();
  /// Runs more steps and returns their row of section "phases", named `of`.
  BenchRow phases(const std::string& of, int64_t steps);

  Trainer& trainer() { return trainer_; }
  const Device& device() const { return device_; }
  int64_t flops_per_sample() const { return flops_; }
  int64_t batch_size() const { return batch_.size; }
  /// The images on the device.
  at::Tensor input() const;

 private:
  Trainer trainer_;
  Device device_;
  Batch batch_, inputs_;
  int64_t flops_ = 0;
  int64_t before_ = -1;  // bytes before the first step
};

/// Returns `config` for a benchmark: it writes no files, runs no validation and does not stop early.
RunConfig bench_config(RunConfig config);

/// Adds the memory before, the peak and their difference, except unknown (negative) values.
void add_memory_numbers(BenchRow& row, int64_t before, int64_t peak);

// The time of the phases of training steps.

/// A profiler that ignores the windows before `from`: it neither times them nor waits for the device in them. Window `from` itself is not
/// counted either, since a Profiler does not count its first window.
class LateProfiler final : public StepObserver {
 public:
  LateProfiler(const Device& device, const ParameterSet& parameters, int64_t from) : profiler_(device, parameters), from_(from) {}
  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override {
    if (attempt >= from_) profiler_.phase_begin(phase, attempt, micro_batch);
  }
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override {
    if (attempt >= from_) profiler_.phase_end(phase, attempt, micro_batch);
  }
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override {
    if (attempt >= from_) profiler_.phase_error(phase, attempt, micro_batch, error);
  }
  Profile profile() const { return profiler_.profile(); }

 private:
  Profiler profiler_;
  int64_t from_;
};

/// Returns the row of section "phases": shares of the time of the counted windows in step order, and the rest. `of`: "train batch 32".
BenchRow phase_row(const std::string& of, const Profile& profile);

}  // namespace npu_train::detail
