/// Attention whose dropout follows `rng:`.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace npu_train {

/// softmax(q k^T / sqrt(E) + mask) v for q [..., L, E], k [..., S, E], v [..., S, Ev]: [..., L, Ev] (Vaswani et al. 2017). A mask of bool
/// keeps where it is true, another is added; `causal` lets a query see the keys up to its own place and takes no mask. `p` is the
/// probability with which a weight is dropped. The fused kernel of the device; with p above 0 inside a PortableRandom its parts. In bf16 on
/// a CPU, without mask and dropout and with at most 256 keys, the backward computes in fp32 and rounds its results: closer to the exact
/// ones, faster on a Zen 4, and Error(Usage) where it is to be differentiated again. Without `fused_kernels` it is libtorch's.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask = std::nullopt,
                     double p = 0, bool causal = false, bool fused_kernels = true);

}  // namespace npu_train
