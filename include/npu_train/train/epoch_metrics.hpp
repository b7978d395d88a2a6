/// Metrics of a validation that need all of its samples at once, such as the recall of a retrieval.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/train/task.hpp"

namespace npu_train {

/// Additional base class of a Task that keeps a row of numbers for each sample of a validation. At the end, every rank has the rows of all
/// samples in host memory. In validations, the metrics named here replace those that metric_sums() gives for each batch; a name that
/// metric_sums() does not give exists only in validations.
class EpochMetrics {
 public:
  virtual ~EpochMetrics() = default;

  /// Returns the names; empty: no such metrics.
  virtual std::vector<std::string> epoch_metric_names() const = 0;
  /// Returns the rows of a batch, floating point [samples, columns], without padding.
  virtual at::Tensor epoch_rows(const StepOutput& output, const Batch& batch) const = 0;
  /// Returns the sum of each of these metrics over the samples [first, first + count) of `rows`, which has the rows of all ranks, in fp32
  /// on the host. The metric is the total over all ranks, divided by the number of all samples.
  virtual std::vector<double> epoch_sums(const at::Tensor& rows, int64_t first, int64_t count) const = 0;
};

}  // namespace npu_train
