#include "npu_train/kernels/lowered_conv.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <vector>

#include "kernels/conv_lowering.hpp"
#include "kernels/fp32_kernel.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/kernels/library_conv.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kLoweredConv = "lowered_conv2d";
constexpr auto kFormat = at::MemoryFormat::ChannelsLast;

// Instruction sets on which the choice of a form depends.
struct Units {
  bool wide, bf16;
};
const Units& units() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const Units here{__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512bf16") != 0};
#else
  static const Units here{true, false};
#endif
  return here;
}

enum class Form { Library, Pointwise, Dense, Taps, Patches };
struct Forms {
  Form forward = Form::Library, input = Form::Library, weight = Form::Library;
  bool any() const { return forward != Form::Library || input != Form::Library || weight != Form::Library; }
};

// Chooses the form of each pass, based on measurements. `low`: the processor computes low-precision products natively.
Forms forms_of(const ConvShape& s, bool low) {
  constexpr int64_t kTinyMap = 16, kSmallMap = 49, kManyWeights = 256 * 256;
  const bool small = s.out_pixels() <= kSmallMap;
  const auto where = [](bool yes, Form form) { return yes ? form : Form::Library; };
  if (s.pointwise())
    return {.forward = where(small, Form::Pointwise),
            .input = where(small || (!low && s.stride > 1), Form::Pointwise),
            .weight = where(small || !low, Form::Pointwise)};
  if (s.dense()) return {.forward = where(!low, Form::Dense), .input = where(!low, Form::Dense), .weight = Form::Taps};
  if (!units().wide) return {.weight = where(!low, Form::Patches)};  // oneDNN's direct weight gradients need AVX-512
  const bool few = s.out_pixels() <= (s.stride > 1 ? kSmallMap : kTinyMap);
  return {.weight = where(few && s.in_channels * s.out_channels >= kManyWeights, Form::Taps)};
}

at::Tensor by_library(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  return plain_conv2d(x, weight, {}, stride, padding);
}

// A convolution in fp32, in bf16 on processors with native bf16 products, or in low precision by emulation. With emulation, saved tensors
// and results are in low precision, and the arithmetic is in fp32.
class LoweredConv : public torch::autograd::Function<LoweredConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight, int64_t stride,
                            int64_t padding, bool low) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const at::Tensor kept = input.contiguous(kFormat), x = operand(kept, low), w = operand(weight.contiguous(kFormat), low);
    const ConvShape s(x, w, stride, padding);
    ctx->save_for_backward({kept, weight});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["low"] = low;
    return computed(s, forms_of(s, low).forward, x, w).to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, kLoweredConv,
          "its backward cannot be differentiated (double backward); use at::conv2d, or switch fused kernels off in the model");
    torch::autograd::variable_list out(5);
    if (!grads[0].defined()) return out;
    const auto saved = ctx->get_saved_variables();
    const int64_t stride = ctx->saved_data["stride"].toInt(), padding = ctx->saved_data["padding"].toInt();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto dtype = saved[0].scalar_type();
    const bool low = ctx->saved_data["low"].toBool();
    const at::Tensor x = operand(saved[0], low), w = operand(saved[1].contiguous(kFormat), low),
                     dy = operand(grads[0].contiguous(kFormat), low);
    const ConvShape s(x, w, stride, padding);
    const Forms forms = forms_of(s, low);
    if (ctx->needs_input_grad(0)) out[0] = input_gradient(s, forms.input, dy, w);
    if (ctx->needs_input_grad(1)) out[1] = weight_gradient(s, forms.weight, dy, x);
    const std::array<bool, 3> rest = {ctx->needs_input_grad(0) && !out[0].defined(), ctx->needs_input_grad(1) && !out[1].defined(), false};
    if (rest[0] || rest[1]) {
      auto gradients = library_conv2d_backward(dy, x, w, stride, padding, rest);
      if (rest[0]) out[0] = std::move(gradients[0]);
      if (rest[1]) out[1] = std::move(gradients[1]);
    }
    for (auto& gradient : out)
      if (gradient.defined()) gradient = gradient.to(dtype);
    return out;
  }

 private:
  static at::Tensor operand(const at::Tensor& t, bool low) { return low ? t : widened(t); }
  static at::Tensor computed(const ConvShape& s, Form form, const at::Tensor& x, const at::Tensor& w) {
    if (form == Form::Library) return by_library(x, w, s.stride, s.padding);
    return form == Form::Dense ? dense::forward(s, x, w) : pointwise::forward(s, x, w);
  }
  // Returns the gradient of the input; undefined if the library must compute it.
  static at::Tensor input_gradient(const ConvShape& s, Form form, const at::Tensor& dy, const at::Tensor& w) {
    if (form == Form::Library) return {};
    return form == Form::Dense ? dense::input_gradient(s, dy, w) : pointwise::input_gradient(s, dy, w);
  }
  static at::Tensor weight_gradient(const ConvShape& s, Form form, const at::Tensor& dy, const at::Tensor& x) {
    switch (form) {
      case Form::Pointwise:
        return pointwise::weight_gradient(s, dy, x);
      case Form::Taps:
        return taps::weight_gradient(s, dy, x);
      case Form::Patches:
        return patches::weight_gradient(s, dy, x);
      default:
        return {};
    }
  }
};

bool is_plain_image(const at::Tensor& t) {
  return t.defined() && t.is_cpu() && t.layout() == at::kStrided && t.dim() == 4 && t.numel() > 0;
}

bool can_lower(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  if (!is_plain_image(x) || !is_plain_image(weight)) return false;
  if (x.suggest_memory_format() != kFormat && weight.suggest_memory_format() != kFormat) return false;
  const int64_t k = weight.size(2);
  return weight.size(3) == k && weight.size(1) == x.size(1) && stride > 0 && padding >= 0 && x.size(2) + 2 * padding >= k &&
         x.size(3) + 2 * padding >= k;
}

}  // namespace

bool multiplies_bf16() { return units().bf16; }

bool has_lowered_conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding, bool low) {
  return can_lower(x, weight, stride, padding) && forms_of(ConvShape(x, weight, stride, padding), low).any();
}

at::Tensor lowered_conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding, bool low) {
  return LoweredConv::apply(x, weight, stride, padding, low);
}

}  // namespace npu_train::detail
