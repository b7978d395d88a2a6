// What the sources of TrainLoop share.
#pragma once

#include "npu_train/train/loop.hpp"
#include "npu_train/train/meter.hpp"

namespace npu_train {

/// A step whose numbers still lie on the device, with what the host knew when it ran.
struct TrainLoop::Pending {
  StepResult result;
  StepReport report;
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
