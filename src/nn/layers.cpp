#include "npu_train/nn/layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <ostream>

#include "nn/library_conv.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/dropout.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/lowered_conv.hpp"
#include "npu_train/nn/packed_linear.hpp"

namespace npu_train {

at::Tensor detail::with_adapter(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  const auto wide = [](const at::Tensor& t) { return t.detach().to(t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); };
  const auto dtype = c10::promoteTypes(weight.scalar_type(), c10::promoteTypes(a.scalar_type(), b.scalar_type()));
  return (wide(weight) + at::mm(wide(b), wide(a)) * scale).to(dtype);
}

Conv2d::Conv2d(const Options& o) : torch::nn::Module("Conv2d"), options(o) {
  check(o.in > 0 && o.out > 0 && o.kernel > 0 && o.stride > 0 && o.padding >= 0, ErrorKind::Usage, "Conv2d", "in ", o.in, ", out ", o.out,
        ", kernel ", o.kernel, ", stride ", o.stride, ", padding ", o.padding, "; all must be at least 1, padding at least 0");
  check(!o.lowered || !o.bias, ErrorKind::Usage, "Conv2d", "a lowered convolution has no bias");
  weight = register_parameter("weight", at::empty({o.out, o.in, o.kernel, o.kernel}));
  if (o.bias) bias = register_parameter("bias", at::empty({o.out}));
}

at::Tensor Conv2d::forward(const at::Tensor& x) const {
  if (options.lowered) return lowered_conv2d(x, weight, options.stride, options.padding);
  return detail::library_conv2d(x, weight, bias, options.stride, options.padding);
}

void Conv2d::pretty_print(std::ostream& stream) const {
  stream << "Conv2d(" << options.in << ", " << options.out << ", kernel=" << options.kernel << ", stride=" << options.stride
         << ", padding=" << options.padding << (options.bias ? ")" : ", bias=false)");
}

Linear::Linear(int64_t in, int64_t out, bool with_bias, bool in_packed_form) : torch::nn::Module("Linear"), packed(in_packed_form) {
  check(in > 0 && out > 0, ErrorKind::Usage, "Linear", "in ", in, ", out ", out, "; both must be at least 1");
  weight = register_parameter("weight", at::empty({out, in}));
  if (with_bias) bias = register_parameter("bias", at::empty({out}));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  const at::Tensor y = packed ? packed_linear(x, weight, bias) : at::linear(x, weight, bias);
  if (adapter_a_ == nullptr) return y;
  const at::Tensor low = adapter_a_->forward(npu_train::dropout(x, adapter_dropout_, is_training()));
  return y + adapter_b_->forward(adapter_scale_ == 1 ? low : low * adapter_scale_);
}

void Linear::add_adapter(int64_t rank, double scale, double dropout) {
  check(!has_adapter(), ErrorKind::Usage, "Linear", "the layer has an adapter; hint: merge_adapter() first");
  check(rank >= 1 && std::isfinite(scale) && dropout >= 0 && dropout < 1, ErrorKind::Usage, "Linear", "an adapter of rank ", rank,
        ", scale ", scale, " and dropout ", dropout, "; the rank must be at least 1, the scale finite, dropout at least 0 and below 1");
  auto a = std::make_shared<Linear>(weight.size(1), rank, /*bias=*/false),
       b = std::make_shared<Linear>(rank, weight.size(0), /*bias=*/false);
  init::kaiming_uniform_fan_in_(a->weight);
  init::zeros_(b->weight);
  a->to(weight.device(), weight.scalar_type());
  b->to(weight.device(), weight.scalar_type());
  adapter_a_ = register_module("lora_A", std::move(a));
  adapter_b_ = register_module("lora_B", std::move(b));
  adapter_scale_ = scale, adapter_dropout_ = dropout;
  train(is_training());
}

void Linear::merge_adapter() {
  if (!has_adapter()) return;
  c10::AutoGradMode no_grad(false);
  weight.copy_(detail::with_adapter(weight, adapter_a_->weight, adapter_b_->weight, adapter_scale_));
  unregister_module("lora_A");
  unregister_module("lora_B");
  adapter_a_.reset(), adapter_b_.reset();
}

void Linear::pretty_print(std::ostream& stream) const {
  stream << "Linear(" << weight.size(1) << ", " << weight.size(0) << (bias.defined() ? ")" : ", bias=false)");
}

}  // namespace npu_train
