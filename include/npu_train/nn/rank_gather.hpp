/// Gathers the features of other ranks' samples, for a loss that compares each sample with those of all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "npu_train/base/forward_context.hpp"

namespace npu_train {

/// The rows of all ranks.
struct GatheredRows {
  at::Tensor rows;    ///< [all, features], in rank order
  int64_t first = 0;  ///< index of this rank's first row
};

/// Gathers the rows [n, features] (floating point) of all ranks without rounding; returns `own` if the context has no other ranks.
/// TrainStep adds the ranks to the context of a task that compares samples across ranks (train/task.hpp). All ranks must call gathered()
/// equally often per round of micro-batches.
///
/// In the backward, this rank's rows receive their gradient times all / n, and the rows of other ranks receive no gradient. If every rank
/// computes the same loss over all rows and weights it by n / all, the ranks' gradients sum to those of one process with all samples.
/// Error(Usage) for empty rows, and Error(Peer) if another rank has a different number of features.
GatheredRows gathered(const ForwardContext& context, const at::Tensor& own);

}  // namespace npu_train
