#include "npu_train/nn/attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "nn/cpu_region.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/portable_random.hpp"
#include "npu_train/kernels/short_attention.hpp"
#include "npu_train/nn/dropout.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {
namespace {

constexpr const char* kOperator = "scaled_dot_product_attention";

at::Tensor without_mask(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool causal) {
  const auto region = detail::CpuRegion::here();
  if (!at::GradMode::is_enabled() || region.emulated || region.dtype.value_or(at::kBFloat16) != at::kBFloat16 ||
      detail::must_be_operator(kOperator))
    return at::scaled_dot_product_attention(query, key, value, {}, 0, causal);
  const at::Tensor q = region.cast(query), k = region.cast(key), v = region.cast(value);
  if (!detail::is_short_attention(q, k, v)) return at::scaled_dot_product_attention(q, k, v, {}, 0, causal);
  detail::RecordedOp record("aten::scaled_dot_product_attention",
                            [&] { return std::vector<c10::IValue>{q, k, v, c10::IValue(), 0.0, causal, c10::IValue(), false}; });
  return record.result(detail::short_attention(q, k, v, causal));
}

// Returns 0 for pairs that attend and -10,000 for all others: on a device that saturates, a score plus -inf is an overflow.
at::Tensor finite_mask(const at::Tensor& q, const at::Tensor& keep) {
  return at::zeros(keep.sizes(), q.options().requires_grad(false)).masked_fill(keep.logical_not(), -1e4);
}

at::Tensor causal_mask(const at::Tensor& q, const at::Tensor& k) {
  return at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool).requires_grad(false)).tril();
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double p,
                     bool causal, bool fused_kernels) {
  if ((causal || (mask && mask->scalar_type() == at::kBool)) && saturating_backend(q.device()) != nullptr)
    return attention(q, k, v, finite_mask(q, causal ? causal_mask(q, k) : *mask), p, false, fused_kernels);
  if (fused_kernels && p == 0.0 && !mask) return without_mask(q, k, v, causal);
  if (p == 0.0 || !PortableRandom::is_on()) return at::scaled_dot_product_attention(q, k, v, mask, p, causal);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(-1)));
  std::optional<at::Tensor> keep = mask;
  if (causal) keep = causal_mask(q, k);
  if (keep) scores = keep->scalar_type() == at::kBool ? scores.masked_fill(keep->logical_not(), -INFINITY) : scores + *keep;
  return at::matmul(npu_train::dropout(at::softmax(scores, -1), p, true).to(v.scalar_type()), v);
}

}  // namespace npu_train
