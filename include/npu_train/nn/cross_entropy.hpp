/// Cross-entropy over a large vocabulary, computed in blocks of tokens without an fp32 copy of all logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace npu_train {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;  ///< targets with this value are ignored
  double label_smoothing = 0;   ///< share of the target distribution that is spread over all classes (Szegedy et al., CVPR 2016)
};

/// Returns the mean cross-entropy of logits [..., classes] and targets [...] (int64) over the targets that are not ignored, in fp32; 0 if
/// all are ignored. Value and gradient equal those of at::cross_entropy_loss on fp32 logits up to the order of additions. Saves the logits
/// and two numbers per target; the backward allocates one gradient in the dtype of the logits. This takes two thirds of the memory of
/// at::cross_entropy_loss for fp32 logits, and a quarter for 16-bit logits. Error(Usage) for other shapes and dtypes, for a label_smoothing
/// below 0 or at least 1, and for double backward. A target outside of the classes is an Error(Data) on a CPU; on a device, whose values
/// the host does not read, the result is undefined.
at::Tensor blocked_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options = {});

}  // namespace npu_train
