#include "npu_train/kernels/emulated_ops.hpp"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/fp32_kernel.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void refuse_double_backward(const char* op) {
  check(!at::GradMode::is_enabled(), ErrorKind::Usage, op,
        "the backward of an emulated operator cannot be differentiated (double backward); hint: cpu_low_precision native, or 32-true");
}

namespace {

class Product : public torch::autograd::Function<Product> {
 public:
  // Takes c last, because autograd does not count an absent tensor among the inputs.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& c, double beta,
                            double alpha) {
    const WithoutAutocast fp32;
    ctx->save_for_backward({a, b});
    if (c) ctx->saved_data["shape"] = c->sizes().vec();
    ctx->saved_data["beta"] = beta;
    ctx->saved_data["alpha"] = alpha;
    return rounded(product(widened(c), widened(a), widened(b), beta, alpha), a.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward("product");
    const WithoutAutocast fp32;
    variable_list out(5);
    if (!grads[0].defined()) return out;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &a = saved[0], &b = saved[1], dy = widened(grads[0]);
    const double alpha = ctx->saved_data["alpha"].toDouble(), beta = ctx->saved_data["beta"].toDouble();
    const auto dtype = a.scalar_type();
    const at::Tensor scaled = alpha == 1 ? dy : dy * alpha;
    if (ctx->needs_input_grad(0)) out[0] = rounded(product(std::nullopt, scaled, widened(b).transpose(-2, -1), 0, 1), dtype);
    if (ctx->needs_input_grad(1)) out[1] = rounded(product(std::nullopt, widened(a).transpose(-2, -1), scaled, 0, 1), dtype);
    if (ctx->saved_data.count("shape") != 0 && ctx->needs_input_grad(2)) {
      const at::Tensor dc = beta == 1 ? dy : dy * beta;
      out[2] = rounded(at::sum_to(dc, ctx->saved_data["shape"].toIntVector()), dtype);
    }
    return out;
  }

 private:
  static at::Tensor product(const std::optional<at::Tensor>& c, const at::Tensor& a, const at::Tensor& b, double beta, double alpha) {
    const bool batched = a.dim() == 3;
    if (!c) {
      const at::Tensor ab = batched ? at::bmm(a, b) : at::mm(a, b);
      return alpha == 1 ? ab : ab * alpha;
    }
    return batched ? at::baddbmm(*c, a, b, beta, alpha) : at::addmm(*c, a, b, beta, alpha);
  }
};

class Convolution : public torch::autograd::Function<Convolution> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const ConvolutionArgs& args) {
    const WithoutAutocast fp32;
    ctx->save_for_backward({x, weight});
    if (bias) ctx->saved_data["bias"] = bias->sizes().vec();
    ctx->saved_data["stride"] = args.stride;
    ctx->saved_data["padding"] = args.padding;
    ctx->saved_data["dilation"] = args.dilation;
    ctx->saved_data["output_padding"] = args.output_padding;
    ctx->saved_data["transposed"] = args.transposed;
    ctx->saved_data["groups"] = args.groups;
    const at::Tensor y = at::convolution(widened(x), widened(weight), widened(bias), args.stride, args.padding, args.dilation,
                                         args.transposed, args.output_padding, args.groups);
    return rounded(y, x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward("convolution");
    const WithoutAutocast fp32;
    variable_list out(4);
    if (!grads[0].defined()) return out;
    const auto saved = ctx->get_saved_variables();
    const auto list = [&](const char* name) { return ctx->saved_data[name].toIntVector(); };
    const bool has_bias = ctx->saved_data.count("bias") != 0;
    const auto bias_sizes = has_bias ? list("bias") : std::vector<int64_t>{};
    auto [dx, dw, db] = at::convolution_backward(
        widened(grads[0]), widened(saved[0]), widened(saved[1]), has_bias ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt,
        list("stride"), list("padding"), list("dilation"), ctx->saved_data["transposed"].toBool(), list("output_padding"),
        ctx->saved_data["groups"].toInt(), {ctx->needs_input_grad(0), ctx->needs_input_grad(1), has_bias && ctx->needs_input_grad(2)});
    const auto dtype = saved[0].scalar_type();
    out[0] = rounded(dx, dtype), out[1] = rounded(dw, dtype), out[2] = rounded(db, dtype);
    return out;
  }
};

}  // namespace

at::Tensor emulated_product(const std::optional<at::Tensor>& c, const at::Tensor& a, const at::Tensor& b, double beta, double alpha) {
  return Product::apply(a, b, c, beta, alpha);
}

at::Tensor emulated_convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                const ConvolutionArgs& args) {
  return Convolution::apply(x, weight, bias, args);
}

}  // namespace npu_train::detail
