// What the metrics of several tasks share.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// [N, ...] -> [N], the mean over all but the first dimension.
at::Tensor per_sample(const at::Tensor& values);

// `each` [N] with 0 for the samples that the batch's mask leaves out.
at::Tensor unmasked(const at::Tensor& each, const Batch& batch);

// [N], the rank of the right class among the logits, from 1, counting ties against it; 0 for a NaN, which compares false with all.
at::Tensor rank_of_target(const StepOutput& output, const Batch& batch);

// [N], per sequence the percentage of the tokens that count whose logit is larger than all others; 0 if none counts.
at::Tensor token_accuracy(const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index);

}  // namespace npu_train::detail
