#include "npu_train/kernels/short_attention.hpp"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/fp32_kernel.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// Largest number of keys for which the bf16 flash kernel of the CPU gets a backward pass in fp32. libtorch's own backward pass calls oneDNN
// for each block of each head, and takes 2.7 times as long at 65 keys and 1.3 times as long at 197 (Zen 4). With more keys, the processor's
// native low-precision products are faster.
constexpr int64_t kFewKeys = 256;

class ShortAttention : public torch::autograd::Function<ShortAttention> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            bool causal) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    auto [y, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, causal);
    ctx->save_for_backward({q, k, v, y, log_sums});
    ctx->saved_data["causal"] = causal;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, "scaled_dot_product_attention",
          "its backward cannot be differentiated (double backward); write it as products and a softmax");
    torch::autograd::variable_list out(4);
    if (!grads[0].defined()) return out;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto saved = ctx->get_saved_variables();
    const auto rows = [](const at::Tensor& t) { return widened(t.stride(-1) == 1 ? t : t.contiguous()); };
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        rows(grads[0]), rows(saved[0]), rows(saved[1]), rows(saved[2]), rows(saved[3]), saved[4], 0, ctx->saved_data["causal"].toBool());
    const at::Tensor* all[] = {&dq, &dk, &dv};
    for (size_t i = 0; i < 3; ++i)
      if (ctx->needs_input_grad(i)) out[i] = all[i]->to(saved[i].scalar_type());
    return out;
  }
};

}  // namespace

bool is_short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto fits = [&](const at::Tensor& t) {
    return t.defined() && t.is_cpu() && t.layout() == at::kStrided && t.scalar_type() == at::kBFloat16 && t.dim() == 4 && t.numel() > 0 &&
           t.stride(-1) == 1 && t.size(0) == q.size(0) && t.size(1) == q.size(1) && t.size(3) == q.size(3);
  };
  return fits(q) && fits(k) && fits(v) && k.size(2) == v.size(2) && k.size(2) <= kFewKeys &&
         (q.requires_grad() || k.requires_grad() || v.requires_grad()) && at::globalContext().userEnabledFlashSDP();
}

at::Tensor short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  return ShortAttention::apply(q, k, v, causal);
}

}  // namespace npu_train::detail
