#include "npu_train/nn/lowered_conv.hpp"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <vector>

#include "nn/conv_lowering.hpp"
#include "nn/fp32_kernel.hpp"
#include "nn/recorded_op.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

using detail::ConvShape, detail::widened;
constexpr const char* kLoweredConv = "lowered_conv2d";
constexpr auto kFormat = at::MemoryFormat::ChannelsLast;

// oneDNN's direct weight gradients for channels_last need AVX-512.
bool has_direct_weight_gradient() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool wide = __builtin_cpu_supports("avx512f") != 0;
  return wide;
#else
  return true;
#endif
}

// What is lowered, by measurement: small maps in all passes, strided 1x1 and weight gradients at any size.
constexpr int64_t kSmallMap = 49;
bool lower_forward(const ConvShape& s) { return s.dense() || (s.pointwise() && s.out_pixels() <= kSmallMap); }
bool lower_input(const ConvShape& s) { return s.dense() || (s.pointwise() && (s.out_pixels() <= kSmallMap || s.stride > 1)); }
bool lower_weight(const ConvShape& s) { return s.dense() || s.pointwise() || !has_direct_weight_gradient(); }

at::Tensor by_library(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  return at::conv2d(x, weight, {}, {stride, stride}, at::IntArrayRef{padding, padding});
}

// Works on fp32, and on low precision as an emulated operator does: what is kept and given is low, what is computed fp32.
class LoweredConv : public torch::autograd::Function<LoweredConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight, int64_t stride,
                            int64_t padding) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const at::Tensor kept = input.contiguous(kFormat), x = widened(kept), w = widened(weight.contiguous(kFormat));
    const ConvShape s(x, w, stride, padding);
    ctx->save_for_backward({kept, weight});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    return computed(s, x, w).to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, kLoweredConv,
          "its backward cannot be differentiated (double backward); use at::conv2d, or switch fused kernels off in the model");
    torch::autograd::variable_list out(4);
    if (!grads[0].defined()) return out;
    const auto saved = ctx->get_saved_variables();
    const int64_t stride = ctx->saved_data["stride"].toInt(), padding = ctx->saved_data["padding"].toInt();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto dtype = saved[0].scalar_type();
    const at::Tensor x = widened(saved[0]), w = widened(saved[1].contiguous(kFormat)), dy = widened(grads[0].contiguous(kFormat));
    const ConvShape s(x, w, stride, padding);
    const bool want_input = ctx->needs_input_grad(0), want_weight = ctx->needs_input_grad(1);
    std::array<bool, 3> rest = {want_input && !lower_input(s), want_weight && !lower_weight(s), false};
    if (want_input && !rest[0]) out[0] = s.dense() ? detail::dense::input_gradient(s, dy, w) : detail::pointwise::input_gradient(s, dy, w);
    if (want_weight && !rest[1])
      out[1] = s.dense()       ? detail::dense::weight_gradient(s, dy, x)
               : s.pointwise() ? detail::pointwise::weight_gradient(s, dy, x)
                               : detail::patches::weight_gradient(s, dy, x);
    if (rest[0] || rest[1]) {
      const int64_t zero[] = {0, 0}, one[] = {1, 1}, strides[] = {stride, stride}, paddings[] = {padding, padding};
      auto [dx, dw, none] = at::convolution_backward(dy, x, w, std::nullopt, strides, paddings, one, false, zero, 1, rest);
      if (rest[0]) out[0] = std::move(dx);
      if (rest[1]) out[1] = std::move(dw);
    }
    for (auto& gradient : out)
      if (gradient.defined()) gradient = gradient.to(dtype);
    return out;
  }

 private:
  static at::Tensor computed(const ConvShape& s, const at::Tensor& x, const at::Tensor& w) {
    if (!lower_forward(s)) return by_library(x, w, s.stride, s.padding);
    return s.dense() ? detail::dense::forward(s, x, w) : detail::pointwise::forward(s, x, w);
  }
};

bool is_plain_picture(const at::Tensor& t) {
  return t.defined() && t.is_cpu() && t.layout() == at::kStrided && t.dim() == 4 && t.numel() > 0 && detail::has_kernel_dtype(t);
}

bool can_lower(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  if (!is_plain_picture(x) || !is_plain_picture(weight)) return false;
  if (x.suggest_memory_format() != kFormat && weight.suggest_memory_format() != kFormat) return false;
  const int64_t k = weight.size(2);
  return weight.size(3) == k && weight.size(1) == x.size(1) && stride > 0 && padding >= 0 && x.size(2) + 2 * padding >= k &&
         x.size(3) + 2 * padding >= k;
}

}  // namespace

at::Tensor lowered_conv2d(const at::Tensor& input, const at::Tensor& parameter, int64_t stride, int64_t padding) {
  return translated(kLoweredConv, [&]() -> at::Tensor {
    if (detail::must_be_operator("conv2d")) return by_library(input, parameter, stride, padding);
    const at::Tensor x = detail::cast_if_emulated(input), weight = detail::cast_if_emulated(parameter);
    if (!can_lower(x, weight, stride, padding)) return by_library(x, weight, stride, padding);
    // Under the name of the operation that it stands for: who counts or dumps convolutions finds it.
    detail::RecordedOp record("aten::conv2d", [&] {
      return std::vector<c10::IValue>{x, weight, c10::IValue(), std::vector<int64_t>{stride, stride},
                                      std::vector<int64_t>{padding, padding}};
    });
    return record.result(LoweredConv::apply(x, weight, stride, padding));
  });
}

}  // namespace npu_train
