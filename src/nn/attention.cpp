#include "npu_train/nn/attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "npu_train/device/portable_random.hpp"
#include "npu_train/nn/dropout.hpp"

namespace npu_train {

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double p,
                     bool causal) {
  if (p == 0.0 || !PortableRandom::is_on()) return at::scaled_dot_product_attention(q, k, v, mask, p, causal);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(-1)));
  std::optional<at::Tensor> keep = mask;
  if (causal) keep = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool).requires_grad(false)).tril();
  if (keep) scores = keep->scalar_type() == at::kBool ? scores.masked_fill(keep->logical_not(), -INFINITY) : scores + *keep;
  return at::matmul(npu_train::dropout(at::softmax(scores, -1), p, true).to(v.scalar_type()), v);
}

}  // namespace npu_train
