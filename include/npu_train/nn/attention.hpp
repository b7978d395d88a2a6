/// Attention with dropout that follows `rng:`.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace npu_train {

/// Computes softmax(q k^T / sqrt(E) + mask) v for q [..., L, E], k [..., S, E], v [..., S, Ev]; returns [..., L, Ev] (Vaswani et al. 2017).
/// A bool mask keeps the positions that are true, other masks are added. `causal` masks the keys after a query's position; do not combine
/// it with a mask. On a device whose overflow saturates, a masked score is 10,000 less instead of -inf, which would be an overflow. `p` is
/// the probability of dropping a weight. Runs the fused kernel of the device; if p is above 0 inside a PortableRandom, separate operators.
/// For bf16 on a CPU, without mask and dropout and with at most 256 keys, the backward computes in fp32 and rounds its results: this is
/// more accurate, faster on a Zen 4, and Error(Usage) for double backward. Without `fused_kernels`, libtorch's backward runs.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask = std::nullopt,
                     double p = 0, bool causal = false, bool fused_kernels = true);

}  // namespace npu_train
