#include "npu_train/nn/attention.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "nn/fp32_kernel.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/portable_random.hpp"
#include "npu_train/nn/dropout.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {
namespace {

constexpr const char* kOperator = "scaled_dot_product_attention";

// The flash kernel of CPUs in bf16, with its backward in fp32. libtorch's own calls oneDNN for each block of each head, which takes 2.7
// times the fp32 backward at 65 keys and 1.3 times at 197 (Zen 4); beyond kFewKeys products in units of the processor win.
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
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, kOperator,
          "its backward cannot be differentiated (double backward); write it as products and a softmax");
    torch::autograd::variable_list out(4);
    if (!grads[0].defined()) return out;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto saved = ctx->get_saved_variables();
    const auto rows = [](const at::Tensor& t) { return detail::widened(t.stride(-1) == 1 ? t : t.contiguous()); };
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        rows(grads[0]), rows(saved[0]), rows(saved[1]), rows(saved[2]), rows(saved[3]), saved[4], 0, ctx->saved_data["causal"].toBool());
    const at::Tensor* all[] = {&dq, &dk, &dv};
    for (size_t i = 0; i < 3; ++i)
      if (ctx->needs_input_grad(i)) out[i] = all[i]->to(saved[i].scalar_type());
    return out;
  }
};

// Whether libtorch would take its flash kernel in bf16, for a backward over few keys.
bool is_short(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto fits = [&](const at::Tensor& t) {
    return t.defined() && t.is_cpu() && t.layout() == at::kStrided && t.scalar_type() == at::kBFloat16 && t.dim() == 4 && t.numel() > 0 &&
           t.stride(-1) == 1 && t.size(0) == q.size(0) && t.size(1) == q.size(1) && t.size(3) == q.size(3);
  };
  return fits(q) && fits(k) && fits(v) && k.size(2) == v.size(2) && k.size(2) <= kFewKeys &&
         (q.requires_grad() || k.requires_grad() || v.requires_grad()) && at::globalContext().userEnabledFlashSDP();
}

at::Tensor without_mask(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool causal) {
  const auto region = detail::CpuRegion::here();
  if (!at::GradMode::is_enabled() || region.emulated || region.dtype.value_or(at::kBFloat16) != at::kBFloat16 ||
      detail::must_be_operator(kOperator))
    return at::scaled_dot_product_attention(query, key, value, {}, 0, causal);
  const at::Tensor q = region.cast(query), k = region.cast(key), v = region.cast(value);
  if (!is_short(q, k, v)) return at::scaled_dot_product_attention(q, k, v, {}, 0, causal);
  detail::RecordedOp record("aten::scaled_dot_product_attention",
                            [&] { return std::vector<c10::IValue>{q, k, v, c10::IValue(), 0.0, causal, c10::IValue(), false}; });
  return record.result(ShortAttention::apply(q, k, v, causal));
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double p,
                     bool causal, bool fused_kernels) {
  if (fused_kernels && p == 0.0 && !mask) return without_mask(q, k, v, causal);
  if (p == 0.0 || !PortableRandom::is_on()) return at::scaled_dot_product_attention(q, k, v, mask, p, causal);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(-1)));
  std::optional<at::Tensor> keep = mask;
  if (causal) keep = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool).requires_grad(false)).tril();
  if (keep) scores = keep->scalar_type() == at::kBool ? scores.masked_fill(keep->logical_not(), -INFINITY) : scores + *keep;
  return at::matmul(npu_train::dropout(at::softmax(scores, -1), p, true).to(v.scalar_type()), v);
}

}  // namespace npu_train
