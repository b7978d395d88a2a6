// What the sources of TrainLoop share.
#pragma once

#include "npu_train/device/transfer.hpp"
#include "npu_train/train/loop.hpp"
#include "npu_train/train/meter.hpp"

namespace npu_train {

/// A step whose numbers are still on their way from the device, with what the host knew when it ran.
struct TrainLoop::Pending {
  void take(StepResult step) {
    result = std::move(step);
    numbers = HostCopy(result.packed);
  }
  StepResult result;
  HostCopy numbers;  // of result.packed
  StepReport report;
  bool at_floor = false;  // the loss scale, before it
};

/// Averages of the epoch so far.
struct TrainLoop::EpochSums {
  MetricMeter metrics;
  int64_t samples = 0;
  int64_t skipped = 0;
  double seconds = 0;
  double data_wait = 0;
};

}  // namespace npu_train
