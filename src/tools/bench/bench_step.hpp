// Training steps and predictions of a configuration on one random batch.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train::detail {

inline constexpr double kPasses = 3;  ///< FLOPs of a step over those of a forward: the backward computes two products for each

/// A run that writes nothing and has no end, no data of its own and a constant learning rate.
class BenchStep {
 public:
  /// Equal configurations and sizes give equal weights and batches.
  BenchStep(RunConfig config, const Parts& parts, int64_t batch_size);

  /// One update; returns when the device is done.
  void train();
  /// One prediction, in evaluation mode.
  void predict();
  /// The loss of a step, from now on.
  double loss();
  /// The loss of the batch in evaluation mode.
  double validation_loss();
  /// Peak bytes of a forward and a backward pass in addition to the memory before; -1: the device does not report it.
  int64_t activation_bytes();

  /// Speed, latency and memory from the times of steps.
  void describe(BenchRow& row, const Samples& samples, double gemm_flops) const;
  /// Bytes before the first call, at the peak, and their difference.
  void add_memory(BenchRow& row) const;
  /// Bytes that the operators of an update read and write, each operator for itself; takes a step.
  int64_t bytes_moved();
  /// The row "phases" of some more steps, with `of` as its name.
  BenchRow phases(const std::string& of, int64_t steps);

  Trainer& trainer() { return trainer_; }
  const Device& device() const { return device_; }
  int64_t flops_per_sample() const { return flops_; }
  int64_t batch_size() const { return batch_.size; }
  /// The images, on the device.
  at::Tensor input() const;

 private:
  Trainer trainer_;
  Device device_;
  Batch batch_, inputs_;
  int64_t flops_ = 0;
  int64_t before_ = -1;  // bytes before the first step
};

/// `config` as a benchmark runs it: nothing is written, validated or stopped early.
RunConfig bench_config(RunConfig config);

/// The three numbers of memory, of those that are not negative.
void add_memory_numbers(BenchRow& row, int64_t before, int64_t peak);

}  // namespace npu_train::detail
