// What the metrics of several tasks share.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "npu_train/train/metric.hpp"

namespace npu_train::detail {

// [N, ...] -> [N], the mean over all but the first dimension.
at::Tensor per_sample(const at::Tensor& values);

// `each` [N] with 0 for the samples that the batch's mask leaves out.
at::Tensor unmasked(const at::Tensor& each, const Batch& batch);

// [N], the rank of the right class among the logits, from 1, counting ties against it; 0 for a NaN, which compares false with all.
at::Tensor rank_of_target(const StepOutput& output, const Batch& batch);

// "acc": the percentage of the tokens that count, over all sequences together, whose logit is larger than all others. `targets` gives the
// targets [N, tokens] of a batch, with `ignore_index` for tokens that do not count.
Metric token_accuracy(int64_t ignore_index, std::function<at::Tensor(const StepOutput& output, const Batch& batch)> targets);

}  // namespace npu_train::detail
