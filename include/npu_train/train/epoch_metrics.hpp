/// Metrics of a validation that need all of its samples at once, such as the recall of a retrieval.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/train/task.hpp"

namespace npu_train {

/// A Task that derives from this too keeps a row of numbers of each sample of a validation. At its end every rank has the rows of all
/// samples, and the metrics of these names replace those that metric_sums() gives of each batch. The rows of all samples are in the host
/// memory of each rank.
class EpochMetrics {
 public:
  virtual ~EpochMetrics() = default;

  /// Some of the task's metric_names(); empty: none.
  virtual std::vector<std::string> epoch_metric_names() const = 0;
  /// The rows of a batch, floating point [samples, columns], without padding.
  virtual at::Tensor epoch_rows(const StepOutput& output, const Batch& batch) const = 0;
  /// The sum of each of these metrics over the samples [first, first + count) of `rows`, which has those of all ranks, in fp32 on the
  /// host. Divided by the number of all samples the ranks' sums are the metrics.
  virtual std::vector<double> epoch_sums(const at::Tensor& rows, int64_t first, int64_t count) const = 0;
};

}  // namespace npu_train
