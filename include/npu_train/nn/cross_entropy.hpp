/// Cross-entropy over a large vocabulary, in blocks of tokens, without an fp32 copy of all logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace npu_train {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;  ///< targets of this value do not count
  double label_smoothing = 0;   ///< share of the target that all classes divide equally (Szegedy et al., CVPR 2016)
};

/// The mean cross entropy of logits [..., classes] and targets [...] (int64) over the targets that count, in fp32: the value and gradient
/// of at::cross_entropy_loss on fp32 logits, up to the order of sums; 0 if no target counts. In addition to the logits it keeps two numbers
/// for each target, and its backward needs the gradient in the dtype of the logits: in fp32 two thirds of the memory of
/// at::cross_entropy_loss, in 16 bits a quarter. Error(Usage) for other shapes and dtypes, for a label_smoothing below 0 or at least 1, and
/// if its gradient is to be differentiated again. A target outside of the classes is undefined on a device, where the host sees no values;
/// on a CPU an Error(Data).
at::Tensor blocked_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options = {});

}  // namespace npu_train
