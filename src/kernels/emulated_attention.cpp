#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>

#include "kernels/fp32_kernel.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/kernels/emulated_ops.hpp"

namespace npu_train::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor attention(const variable_list& in, const AttentionArgs& args) {
  const std::optional<at::Tensor> mask = in[3].defined() ? std::optional(in[3]) : std::nullopt;
  return at::scaled_dot_product_attention(in[0], in[1], in[2], mask, args.dropout, args.causal, args.scale, args.grouped_heads);
}

at::Tensor as_fp32(const at::Tensor& t) { return t.defined() && t.scalar_type() != at::kBool ? widened(t) : t; }

struct KeptRandom : torch::CustomClassHolder {
  RandomState state = RandomState(std::vector<c10::Device>());
};

// Attention that does not save the scores: the backward recomputes the forward in fp32 and differentiates it.
class Attention : public torch::autograd::Function<Attention> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& mask, const AttentionArgs& args) {
    const WithoutAutocast fp32;
    const at::Tensor added = mask.value_or(at::Tensor());
    ctx->save_for_backward({q, k, v, added});
    if (args.dropout > 0) ctx->saved_data["random"] = c10::IValue::make_capsule(c10::make_intrusive<KeptRandom>());
    ctx->saved_data["dropout"] = args.dropout;
    ctx->saved_data["causal"] = args.causal;
    ctx->saved_data["scale"] = args.scale ? c10::IValue(*args.scale) : c10::IValue();
    ctx->saved_data["grouped_heads"] = args.grouped_heads;
    return rounded(attention({as_fp32(q), as_fp32(k), as_fp32(v), as_fp32(added)}, args), q.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward("scaled_dot_product_attention");
    const WithoutAutocast fp32;
    variable_list out(5);
    if (!grads[0].defined()) return out;
    auto data = [ctx](const char* name) { return ctx->saved_data[name]; };
    const AttentionArgs args{data("dropout").toDouble(), data("causal").toBool(), data("scale").toOptional<double>(),
                             data("grouped_heads").toBool()};
    const auto saved = ctx->get_saved_variables();
    variable_list in(4), wanted;
    const auto wants = [&](size_t i) { return saved[i].defined() && ctx->needs_input_grad(i); };
    for (size_t i = 0; i < 4; ++i) {
      in[i] = saved[i].defined() ? as_fp32(saved[i]).detach() : saved[i];
      if (wants(i)) wanted.push_back(in[i].set_requires_grad(true));
    }
    at::Tensor y;
    {
      const at::AutoGradMode recording(true);
      std::optional<RandomState::Scope> again;
      if (args.dropout > 0) again.emplace(c10::static_intrusive_pointer_cast<KeptRandom>(data("random").toCapsule())->state);
      y = attention(in, args);
    }
    const auto gradients = torch::autograd::grad({y}, wanted, {widened(grads[0])});
    for (size_t i = 0, next = 0; i < 4; ++i)
      if (wants(i)) out[i] = rounded(gradients[next++], saved[i].scalar_type());
    return out;
  }
};

}  // namespace

at::Tensor emulated_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                              const AttentionArgs& args) {
  return Attention::apply(q, k, v, mask, args);
}

}  // namespace npu_train::detail
