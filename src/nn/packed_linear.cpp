#include "npu_train/nn/packed_linear.hpp"

#include <ATen/ops/linear.h>

#include <vector>

#include "nn/cpu_region.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/kernels/packed_linear.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {

at::Tensor packed_linear(const at::Tensor& input, const at::Tensor& parameter, const at::Tensor& offset) {
  return translated("packed_linear", [&]() -> at::Tensor {
    const auto region = detail::CpuRegion::here();
    if (detail::must_be_operator("linear") || (region.dtype && !region.emulated)) return at::linear(input, parameter, offset);
    const at::Tensor x = region.cast(input), weight = region.cast(parameter), bias = region.cast(offset);
    const auto dtype = region.dtype.value_or(at::kFloat);
    const bool fits = detail::has_packed_product(x, weight, bias) && x.scalar_type() == dtype && weight.scalar_type() == dtype &&
                      (!bias.defined() || bias.scalar_type() == dtype);
    if (!fits) return at::linear(x, weight, bias);
    // Recorded as the operator that it replaces, so that tools that count or dump linear layers find it.
    detail::RecordedOp record("aten::linear", [&] { return std::vector<c10::IValue>{x, weight, bias}; });
    return record.result(detail::packed_product(x, weight, bias));
  });
}

}  // namespace npu_train
