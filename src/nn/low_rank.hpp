// The product of a low-rank adapter.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

namespace npu_train::detail {

// weight [out, in] + scale * b [out, rank] a [rank, in], computed in at least fp32; in the wider dtype of the three.
inline at::Tensor with_adapter(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  const auto wide = [](const at::Tensor& t) { return t.detach().to(t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); };
  const auto dtype = c10::promoteTypes(weight.scalar_type(), c10::promoteTypes(a.scalar_type(), b.scalar_type()));
  return (wide(weight) + at::mm(wide(b), wide(a)) * scale).to(dtype);
}

}  // namespace npu_train::detail
