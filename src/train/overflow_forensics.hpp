// Decides which skipped steps are explained, and explains them: StepOptions::on_overflow and detect_anomaly.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/device/random.hpp"
#include "npu_train/train/step.hpp"
#include "train/kept_buffers.hpp"

namespace npu_train::detail {

class OverflowForensics {
 public:
  // The arguments are borrowed. `parameters`: those of the task. `buffers` has the values from before the window. `bring` returns a
  // micro-batch on the device.
  OverflowForensics(Task& task, const ParameterSet& parameters, Precision& precision, Optimizer& optimizer, Strategy& strategy,
                    const StepOptions& options, bool may_skip, KeptBuffers& buffers, std::function<Batch(const Batch&)> bring);

  // Returns whether an overflow may be explained later. If so, the buffers must be kept at the start of each window.
  bool watches() const;
  // Called before a window: keeps the state that a replay needs.
  void begin();
  // Explains gradients that are not finite, for a precision that cannot skip the step.
  void look_at_gradients(const std::vector<Batch>& window, double full_weight, int64_t attempt);
  // Called after the step, whether it was taken or skipped.
  void end(bool taken, const std::vector<Batch>& window, double full_weight, int64_t attempt);
  void set_taken_one(bool taken_one) { taken_one_ = taken_one; }

 private:
  at::Device device() const;  // device of forward and backward
  bool is_due(int64_t streak) const;
  void explain(const std::vector<Batch>& window, double full_weight, int64_t attempt, int64_t streak);

  Task& task_;
  const ParameterSet& parameters_;
  Precision& precision_;
  Optimizer& optimizer_;
  Strategy& strategy_;
  std::function<void(const OverflowReport&)> report_to_;
  bool detect_anomaly_;
  bool may_skip_;
  int64_t last_skip_;
  KeptBuffers& buffers_;
  std::function<Batch(const Batch&)> bring_;
  RandomState random_;  // states of the generators before the window
  bool taken_one_ = false;
  bool explained_ = false;  // an earlier step of the current row of skipped steps was explained
};

}  // namespace npu_train::detail
