#include "npu_train/nn/lowered_conv.hpp"

#include <vector>

#include "nn/cpu_region.hpp"
#include "nn/library_conv.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/kernels/lowered_conv.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {
namespace {

at::Tensor by_library(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  return detail::library_conv2d(x, weight, {}, stride, padding);
}

}  // namespace

at::Tensor lowered_conv2d(const at::Tensor& input, const at::Tensor& parameter, int64_t stride, int64_t padding) {
  return translated("lowered_conv2d", [&]() -> at::Tensor {
    const auto region = detail::CpuRegion::here();
    const bool bf16 = detail::multiplies_bf16() && !region.emulated && region.dtype.value_or(at::kBFloat16) == at::kBFloat16;
    if (detail::must_be_operator("conv2d") || (region.dtype && !region.emulated && !bf16))
      return by_library(input, parameter, stride, padding);
    const at::Tensor x = region.cast(input), weight = region.cast(parameter);
    const bool low = bf16 && x.scalar_type() == at::kBFloat16;
    const auto dtype = low ? at::kBFloat16 : region.dtype.value_or(at::kFloat);
    const bool fits =
        x.scalar_type() == dtype && weight.scalar_type() == dtype && detail::has_lowered_conv(x, weight, stride, padding, low);
    if (!fits) return by_library(x, weight, stride, padding);
    // Recorded as the operator that it replaces, so that tools that count or dump convolutions find it.
    detail::RecordedOp record("aten::conv2d", [&] {
      return std::vector<c10::IValue>{x, weight, c10::IValue(), std::vector<int64_t>{stride, stride},
                                      std::vector<int64_t>{padding, padding}};
    });
    return record.result(detail::lowered_conv(x, weight, stride, padding, low));
  });
}

}  // namespace npu_train
