// Forward and backward of the micro-batches of one window.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/train/step.hpp"
#include "train/running_statistics.hpp"

namespace npu_train::detail {

// Sums over the micro-batches of one window.
struct WindowSums {
  int64_t micro_batches = 0;
  double full_weight = 0;  // divisor of the losses' weights; 0 until the first micro-batch sets it
  at::Tensor sums;         // [1 + 2 x metrics]: loss (in units of full_weight), metric sums, their counts
  double weight = 0;
  double samples = 0;
};

class WindowPass {
 public:
  // Borrows all arguments. `computed`: the parameters that forward and backward use, on their device.
  WindowPass(Task& task, Precision& precision, Strategy& strategy, const Observers& observers, const StepOptions& options,
             const ParameterSet& computed);

  // Called before each window; `attempt` counts windows.
  void begin(size_t micro_batches, int64_t attempt);
  // Computes a window, each loss times its weight / R. `scale`: factor on the losses, fp32 on the device; undefined: the precision scales
  // them. A rank without a batch takes part in the window of the others.
  WindowSums run(const std::vector<Batch>& window, double full_weight, const at::Tensor& scale = {});
  // Calls `fn` as a phase of the window.
  template <class Fn>
  decltype(auto) run_phase(Phase phase, int micro_batch, Fn&& fn) {
    phase_ = phase;
    return observers_.run(phase, attempt_, micro_batch, std::forward<Fn>(fn));
  }
  // Returns a batch on the device of the parameters.
  Batch brought(const Batch& batch) const { return must_bring(batch) ? bring_(batch) : batch; }

  RunningStatistics& statistics() { return statistics_; }
  // The phase and micro-batch that began last.
  Phase phase() const { return phase_; }
  int micro_batch() const { return micro_batch_; }

 private:
  bool must_bring(const Batch& batch) const;
  void accumulate(const Batch& given, WindowSums& window, const at::Tensor& scale);
  StepOutput forward(const Batch& batch, uint64_t draw_key);
  void end_micro_batch();
  void take_part(WindowSums& window);

  Task& task_;
  Precision& precision_;
  Strategy& strategy_;
  const Observers& observers_;
  std::function<Batch(const Batch&)> bring_;
  at::TensorOptions options_of_sums_;  // fp32 on the device of the parameters
  RunningStatistics statistics_;
  int64_t attempt_ = 0;
  Phase phase_ = Phase::Transfer;
  int micro_batch_ = 0;
};

}  // namespace npu_train::detail
