#include "npu_train/nn/layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <ostream>

#include "nn/cpu_region.hpp"
#include "nn/library_conv.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/kernels/short_attention.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/lowered_conv.hpp"
#include "npu_train/nn/packed_linear.hpp"
#include "npu_train/trace/recorded_op.hpp"

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

namespace {

constexpr const char* kOperator = "scaled_dot_product_attention";

at::Tensor without_mask(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool causal) {
  const auto region = detail::CpuRegion::here();
  if (!at::GradMode::is_enabled() || region.emulated || region.dtype.value_or(at::kBFloat16) != at::kBFloat16 ||
      detail::must_be_operator(kOperator))
    return at::scaled_dot_product_attention(query, key, value, {}, 0, causal);
  const at::Tensor q = region.cast(query), k = region.cast(key), v = region.cast(value);
  if (!detail::is_short_attention(q, k, v)) return at::scaled_dot_product_attention(q, k, v, {}, 0, causal);
  detail::RecordedOp record("aten::scaled_dot_product_attention",
                            [&] { return std::vector<c10::IValue>{q, k, v, c10::IValue(), 0.0, causal, c10::IValue(), false}; });
  return record.result(detail::short_attention(q, k, v, causal));
}

// Returns 0 for pairs that attend and -10,000 for all others, because on a device that saturates, a score plus -inf is an overflow.
at::Tensor finite_mask(const at::Tensor& q, const at::Tensor& keep) {
  return at::zeros(keep.sizes(), q.options().requires_grad(false)).masked_fill(keep.logical_not(), -1e4);
}

at::Tensor causal_mask(const at::Tensor& q, const at::Tensor& k) {
  return at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool).requires_grad(false)).tril();
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double p,
                     bool causal, bool fused_kernels) {
  if ((causal || (mask && mask->scalar_type() == at::kBool)) && saturating_backend(q.device()) != nullptr)
    return attention(q, k, v, finite_mask(q, causal ? causal_mask(q, k) : *mask), p, false, fused_kernels);
  if (fused_kernels && p == 0.0 && !mask) return without_mask(q, k, v, causal);
  if (p == 0.0 || !PortableRandom::is_on()) return at::scaled_dot_product_attention(q, k, v, mask, p, causal);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(-1)));
  std::optional<at::Tensor> keep = mask;
  if (causal) keep = causal_mask(q, k);
  if (keep) scores = keep->scalar_type() == at::kBool ? scores.masked_fill(keep->logical_not(), -INFINITY) : scores + *keep;
  return at::matmul(npu_train::dropout(at::softmax(scores, -1), p, true).to(v.scalar_type()), v);
}

namespace {

// Returns 1 / (1 - p) for kept values and 0 for dropped ones.
at::Tensor factors(at::IntArrayRef sizes, const at::Tensor& like, double p) {
  at::Tensor keep;
  if (PortableRandom::is_on())
    keep = PortableRandom::uniform(sizes, like.device()).ge(p).to(like.scalar_type());
  else
    keep = at::empty(sizes, like.options().requires_grad(false)).bernoulli_(1.0 - p);
  return p < 1.0 ? keep.div_(1.0 - p) : keep;
}

bool drops(double p, bool training) {
  check(p >= 0.0 && p <= 1.0, ErrorKind::Usage, "dropout", "p is ", p, "; it must be between 0 and 1");
  return training && p > 0.0;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, bool training) {
  if (!drops(p, training)) return x;
  return PortableRandom::is_on() ? x * factors(x.sizes(), x, p) : at::dropout(x, p, true);
}

at::Tensor drop_path(const at::Tensor& x, double p, bool training) {
  if (!drops(p, training)) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  return x * factors(sizes, x, p);
}

}  // namespace npu_train
