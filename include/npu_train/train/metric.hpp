/// Numbers that are reported next to the loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "npu_train/train/task.hpp"

namespace npu_train {

/// A metric that is a mean over samples.
struct Metric {
  std::string name;  ///< "acc1"; logged as "val/acc1"
  /// Its sum over the samples of a batch: one fp32 number on the device. Called without gradients. Sums of many batches and of many ranks
  /// add up; divided by the number of samples they are the metric. A "mask" [batch] in the batch is 0 for samples that do not count.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> sums;
};

/// Share of the samples, in percent, whose class is among the `k` largest logits (ties count against it): "acc1", "acc5". The first output
/// is logits [batch, classes], the target [batch] (int64) or [batch, classes].
Metric accuracy(int64_t k);

/// Mean absolute difference between first output and target, "mae"; over all elements of a sample.
Metric mean_absolute_error();

}  // namespace npu_train
