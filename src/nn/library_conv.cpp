#include "nn/library_conv.hpp"

#include <c10/core/GradMode.h>

#include <optional>
#include <vector>

#include "nn/cpu_region.hpp"
#include "npu_train/kernels/library_conv.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train::detail {

at::Tensor library_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride, int64_t padding) {
  const bool trains = at::GradMode::is_enabled() && weight.requires_grad();
  if (must_be_operator("conv2d") || !trains) return plain_conv2d(x, weight, bias, stride, padding);
  const auto region = CpuRegion::here();
  if (region.emulated || !has_wrong_weight_gradient(region.dtype.value_or(x.scalar_type()), x, weight, stride, padding))
    return plain_conv2d(x, weight, bias, stride, padding);
  const at::Tensor input = region.cast(x), parameter = region.cast(weight);
  const auto shift = bias.defined() ? std::optional(region.cast(bias)) : std::nullopt;
  if (input.scalar_type() != at::kBFloat16 || parameter.scalar_type() != at::kBFloat16)
    return plain_conv2d(x, weight, bias, stride, padding);
  // Recorded as the operator that it replaces, so that tools that count or dump convolutions find it.
  RecordedOp record("aten::conv2d", [&] {
    return std::vector<c10::IValue>{input, parameter, shift ? c10::IValue(*shift) : c10::IValue(), std::vector<int64_t>{stride, stride},
                                    std::vector<int64_t>{padding, padding}};
  });
  return record.result(conv2d_with_right_gradient(input, parameter, shift, stride, padding));
}

}  // namespace npu_train::detail
