// Parts of metrics that several tasks share.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "npu_train/train/metric.hpp"

namespace npu_train::detail {

// Returns the mean over all but the first dimension: [N, ...] -> [N].
at::Tensor per_sample(const at::Tensor& values);

// Returns `each` [N] with 0 for the samples that the batch's mask excludes.
at::Tensor unmasked(const at::Tensor& each, const Batch& batch);

// Returns [N], the rank of the right class among the logits, from 1; ties count against it. 0 if its logit is NaN, which compares false
// with all.
at::Tensor rank_of_target(const StepOutput& output, const Batch& batch);

// Returns the metric "acc": the percentage of counted tokens, over all sequences together, whose logit is larger than all others. `targets`
// returns the targets [N, tokens] of a batch, with `ignore_index` for tokens that do not count.
Metric token_accuracy(int64_t ignore_index, std::function<at::Tensor(const StepOutput& output, const Batch& batch)> targets);

}  // namespace npu_train::detail
