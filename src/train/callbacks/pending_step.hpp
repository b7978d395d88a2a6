// A step whose numbers are still being copied from the device, with the values that the host already knows. The numbers are read one step
// late, from a copy that was queued directly after the step, so that the host does not wait for newer work.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/device/transfer.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/step.hpp"

namespace npu_train::detail {

struct PendingStep {
  void take(StepResult step) {
    result = std::move(step);
    numbers = HostCopy(result.packed);
  }
  // Returns `report` with the numbers from the device.
  StepReport read(const std::vector<std::string>& metric_names) const;

  StepResult result;
  HostCopy numbers;  // copy of result.packed
  StepReport report;
  bool at_floor = false;  // the loss scale was at its floor before the step
};

// Adds the task's metrics that follow from the loss; their count is that of the loss.
void add_metrics_of_loss(const Task& task, StepReport& report);

}  // namespace npu_train::detail
