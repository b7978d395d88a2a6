#include "npu_train/kernels/packed_linear.hpp"

#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "kernels/fp32_kernel.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/kernels/onednn_ops.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kPackedLinear = "packed_linear";
constexpr int64_t kLeastRows = 1024;  // with fewer rows, packing the weights costs more than the product saves

bool mkl_has_its_best_kernels_here() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return intel;
#else
  return true;
#endif
}

at::Tensor as_rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }

struct PackedOps {
  std::optional<c10::OperatorHandle> lay_out = onednn("mkldnn::_reorder_linear_weight"), run = onednn("mkldnn::_linear_pointwise");
  explicit operator bool() const { return lay_out && run; }

  // Returns rows * weight^T + bias, [N, out], for `rows` [N, in] and `weight` [out, in].
  at::Tensor product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor packed = call_boxed(*lay_out, {weight.contiguous(), rows.size(0)});
    return call_boxed(*run, {rows.contiguous(), packed, bias.defined() ? c10::IValue(bias) : c10::IValue(), "none",
                             c10::List<std::optional<at::Scalar>>(), ""});
  }
};

// A linear layer in fp32, or in low precision by emulation: saved tensors and results are in low precision, and the arithmetic is in fp32.
class PackedLinear : public torch::autograd::Function<PackedLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    auto sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    const at::Tensor y = PackedOps().product(widened(as_rows(x)), widened(weight), bias ? widened(*bias) : at::Tensor());
    return y.view(sizes).to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, kPackedLinear,
          "its backward cannot be differentiated (double backward); use at::linear, or switch fused kernels off in the model");
    torch::autograd::variable_list out(3);
    if (!grads[0].defined()) return out;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor dy = widened(as_rows(grads[0])), w = widened(saved[1]);
    const PackedOps ops;
    if (ctx->needs_input_grad(0)) out[0] = (ops ? ops.product(dy, w.t(), {}) : at::mm(dy, w)).view(saved[0].sizes());
    if (ctx->needs_input_grad(1)) out[1] = at::mm(dy.t(), widened(as_rows(saved[0])));
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) out[2] = dy.sum(0);
    for (auto& gradient : out)
      if (gradient.defined()) gradient = gradient.to(saved[0].scalar_type());
    return out;
  }
};

bool is_plain(const at::Tensor& t) { return t.defined() && t.is_cpu() && t.layout() == at::kStrided; }

}  // namespace

bool has_packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (mkl_has_its_best_kernels_here()) return false;
  if (!is_plain(x) || !is_plain(weight)) return false;
  if (x.dim() < 2 || weight.dim() != 2 || weight.numel() == 0 || x.size(-1) != weight.size(1)) return false;
  if (bias.defined() && (!is_plain(bias) || bias.dim() != 1 || bias.size(0) != weight.size(0))) return false;
  return x.numel() / x.size(-1) >= kLeastRows && PackedOps();
}

at::Tensor packed_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return PackedLinear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace npu_train::detail
