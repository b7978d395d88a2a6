#include "npu_train/kernels/library_conv.hpp"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/fp32_kernel.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// A convolution with libtorch's forward pass. The backward pass is library_conv2d_backward(), which avoids libtorch's faulty kernel.
class LibraryConv : public torch::autograd::Function<LibraryConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t stride, int64_t padding) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["biased"] = bias.has_value();
    return plain_conv2d(x, weight, bias.value_or(at::Tensor()), stride, padding);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, "conv2d",
          "the backward of a bf16 convolution on a map narrower than its stride cannot be differentiated (double backward); hint: fp32");
    torch::autograd::variable_list out(5);
    if (!grads[0].defined()) return out;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto saved = ctx->get_saved_variables();
    const bool biased = ctx->saved_data["biased"].toBool();  // an absent tensor is not counted among autograd's inputs
    const std::array<bool, 3> wanted = {ctx->needs_input_grad(0), ctx->needs_input_grad(1), biased && ctx->needs_input_grad(2)};
    auto gradients = library_conv2d_backward(grads[0], saved[0], saved[1], ctx->saved_data["stride"].toInt(),
                                             ctx->saved_data["padding"].toInt(), wanted);
    for (size_t i = 0; i < gradients.size(); ++i) out[i] = std::move(gradients[i]);
    return out;
  }
};

}  // namespace

at::Tensor plain_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride, int64_t padding) {
  return at::conv2d(x, weight, bias, {stride, stride}, at::IntArrayRef{padding, padding});
}

bool has_wrong_weight_gradient(at::ScalarType dtype, const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  return dtype == at::kBFloat16 && x.is_cpu() && x.dim() == 4 && weight.dim() == 4 && stride > x.size(3) && padding > 0 &&
         weight.size(3) > 1;
}

std::array<at::Tensor, 3> library_conv2d_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                                                  int64_t padding, std::array<bool, 3> wanted) {
  const bool in_fp32 = wanted[1] && has_wrong_weight_gradient(x.scalar_type(), x, weight, stride, padding);
  const auto operand = [in_fp32](const at::Tensor& t) { return in_fp32 ? widened(t) : t; };
  const int64_t zero[] = {0, 0}, one[] = {1, 1}, strides[] = {stride, stride}, paddings[] = {padding, padding},
                outputs[] = {weight.size(0)};
  auto [dx, dw, db] = at::convolution_backward(operand(dy), operand(x), operand(weight), at::IntArrayRef(outputs), strides, paddings, one,
                                               /*transposed=*/false, zero, weight.size(1) > 0 ? x.size(1) / weight.size(1) : 1, wanted);
  std::array<at::Tensor, 3> out = {dx, dw, db};
  for (auto& gradient : out)
    if (gradient.defined()) gradient = gradient.to(x.scalar_type());
  return out;
}

at::Tensor conv2d_with_right_gradient(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t stride,
                                      int64_t padding) {
  return LibraryConv::apply(x, weight, bias, stride, padding);
}

}  // namespace npu_train::detail
