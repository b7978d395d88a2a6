#include "nn/chain_forms.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "npu_train/kernels/onednn_ops.hpp"

namespace npu_train::detail {
namespace {

using Inputs = std::vector<at::Tensor>;

at::Tensor tensor_or_none(const c10::IValue& v) { return v.isTensor() ? v.toTensor() : at::Tensor(); }

int64_t bytes(const at::Tensor& t) { return t.defined() ? t.numel() * static_cast<int64_t>(t.element_size()) : 0; }

bool fits_onednn(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && weight.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && weight.numel() > 0;
}

struct Activation {
  bool relu = false, gelu = false;
  std::string approximate = "none";

  explicit Activation(const OpChain& chain) : relu(chain.find("relu") != nullptr) {
    if (const auto* step = chain.find("gelu")) gelu = true, approximate = step->args[1].toStringRef();
  }
  at::Tensor on(at::Tensor y) const {
    if (relu) y.relu_();
    if (gelu) at::gelu_(y, approximate);
    return y;
  }
  const char* onednn_name() const { return relu ? "relu" : gelu ? "gelu" : "none"; }
  const char* onednn_algorithm() const { return gelu ? approximate.c_str() : ""; }
};

struct FoldedConv {
  at::Tensor weight, bias;  // in the dtype of the convolution's weight
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
  Activation act;
};

// Folds the norm into the weights: conv(x, w) s + t = conv(x, w s) + t, computed in double.
FoldedConv fold(const OpChain& chain) {
  const auto& conv = chain.steps[0].args;
  FoldedConv out{conv[1].toTensor().detach(), tensor_or_none(conv[2]), conv[3].toIntVector(), conv[4].toIntVector(),
                 conv[5].toIntVector(),       conv[6].toInt(),         Activation(chain)};
  const auto* norm = chain.find("batch_norm");
  if (norm == nullptr) return out;
  const auto f64 = [&](size_t i) { return norm->args[i].toTensor().detach().to(at::kDouble); };
  const auto gamma = tensor_or_none(norm->args[1]), beta = tensor_or_none(norm->args[2]);
  at::Tensor scale = (f64(4) + norm->args[7].toDouble()).rsqrt();
  if (gamma.defined()) scale = scale * f64(1);
  at::Tensor shift = -f64(3) * scale;
  if (out.bias.defined()) shift = shift + out.bias.detach().to(at::kDouble) * scale;
  if (beta.defined()) shift = shift + f64(2);
  const auto type = out.weight.scalar_type();
  out.bias = shift.to(type);
  out.weight = (out.weight.to(at::kDouble) * scale.view({-1, 1, 1, 1})).to(type, false, false, out.weight.suggest_memory_format());
  return out;
}

at::Tensor finish(at::Tensor y, const Inputs& in, const Activation& act) {
  if (in.size() > 1) y = in[1].sizes().equals(y.sizes()) ? y.add_(in[1]) : y + in[1];
  return act.on(std::move(y));
}

at::Tensor by_library(const FoldedConv& c, const Inputs& in) {
  return finish(at::conv2d(in[0], c.weight, c.bias, c.stride, c.padding, c.dilation, c.groups), in, c.act);
}

// Returns whether the special forms support the call; the library computes other calls.
bool is_usual(const FoldedConv& c, const Inputs& in) {
  if (in[0].dim() != 4 || in[0].numel() == 0) return false;
  return in.size() == 1 || in[1].sizes() == conv_output_sizes(in[0], c.weight, c.stride, c.padding, c.dilation);
}

at::Tensor as_product(const FoldedConv& c, const at::Tensor& matrix, const Inputs& in) {
  const at::Tensor rows = in[0].permute({0, 2, 3, 1});
  const at::Tensor y = at::addmm(c.bias, rows.reshape({-1, rows.size(3)}), matrix.t());
  return finish(y.view({rows.size(0), rows.size(1), rows.size(2), matrix.size(0)}).permute({0, 3, 1, 2}), in, c.act);
}

std::optional<ChainForm> onednn_conv(const FoldedConv& c, const at::Tensor& x, int64_t own) {
  const auto reorder = onednn("mkldnn::_reorder_convolution_weight"), run = onednn("mkldnn::_convolution_pointwise"),
             sum = onednn("mkldnn::_convolution_pointwise", "binary");
  if (!reorder || !run || !sum || !fits_onednn(x, c.weight)) return std::nullopt;
  auto held = c;
  held.weight = call_boxed(*reorder, {c.weight, c.padding, c.stride, c.dilation, c.groups, x.sizes().vec()});
  return ChainForm{
      "onednn", own, [c = held, run, sum](const Inputs& in) {
        if (!is_usual(c, in)) {
          auto dense = c;
          dense.weight = c.weight.to_dense();
          return by_library(dense, in);
        }
        const c10::List<std::optional<at::Scalar>> none;
        const auto bias = c.bias.defined() ? c10::IValue(c.bias) : c10::IValue();
        if (in.size() == 1)
          return call_boxed(*run, {in[0], c.weight, bias, c.padding, c.stride, c.dilation, c.groups, c.act.onednn_name(), none, ""});
        const auto after = c.act.relu ? c10::IValue("relu") : c10::IValue();
        return call_boxed(
            *sum, {in[0], in[1], c.weight, bias, c.padding, c.stride, c.dilation, c.groups, "add", 1.0, after, none, c10::IValue()});
      }};
}

std::vector<ChainForm> conv_forms(const OpChain& chain) {
  const auto c = fold(chain);
  const auto own = bytes(c.weight) + bytes(c.bias);
  std::vector<ChainForm> out = {{"folded", own, [c](const Inputs& in) { return by_library(c, in); }}};
  const auto inputs = chain.inputs();
  if (!is_usual(c, inputs)) return out;
  const auto all = [](const std::vector<int64_t>& v, int64_t value) {
    return std::all_of(v.begin(), v.end(), [&](int64_t i) { return i == value; });
  };
  const bool pointwise = c.weight.size(2) == 1 && c.weight.size(3) == 1 && c.groups == 1 && all(c.stride, 1) && all(c.padding, 0);
  if (pointwise && c.bias.defined() && inputs[0].is_cpu() && inputs[0].is_contiguous(at::MemoryFormat::ChannelsLast))
    out.push_back({"product", own, [c, matrix = c.weight.flatten(1).contiguous()](const Inputs& in) {
                     return is_usual(c, in) ? as_product(c, matrix, in) : by_library(c, in);
                   }});
  if (auto form = onednn_conv(c, inputs[0], own)) out.push_back(std::move(*form));
  return out;
}

std::vector<ChainForm> linear_forms(const OpChain& chain) {
  const auto& head = chain.steps[0];
  const auto name = head.name();
  at::Tensor weight = chain.weight.detach(), bias;  // [out, in]
  if (name == "aten::linear") bias = tensor_or_none(head.args[2]);
  if (name == "aten::addmm") bias = head.args[0].toTensor();
  if (name != "aten::linear") weight = weight.t();
  if (const auto* sum = chain.find("add")) bias = sum->args[static_cast<size_t>(1 - sum->flow)].toTensor();
  if (bias.defined()) bias = bias.detach();
  const Activation act(chain);
  std::vector<ChainForm> out;
  const auto own = bytes(weight) + bytes(bias);
  out.push_back({"in_place", own, [=](const Inputs& in) { return act.on(at::linear(in[0], weight, bias)); }});
  const auto x = chain.inputs()[0];
  if (x.is_cuda() && act.relu && bias.defined())
    out.push_back({"cublaslt", own, [=](const Inputs& in) {
                     const at::Tensor rows = in[0].reshape({-1, in[0].size(-1)});
                     auto sizes = in[0].sizes().vec();
                     sizes.back() = weight.size(0);
                     return at::_addmm_activation(bias, rows, weight.t(), 1, 1, false).view(sizes);
                   }});
  const auto reorder = onednn("mkldnn::_reorder_linear_weight"), run = onednn("mkldnn::_linear_pointwise");
  if (!reorder || !run || !fits_onednn(x, weight) || x.numel() == 0 || x.dim() < 2) return out;
  const auto packed = call_boxed(*reorder, {weight.contiguous(), x.numel() / x.size(-1)});
  out.push_back({"onednn", own, [=](const Inputs& in) {
                   if (in[0].numel() == 0 || in[0].dim() < 2) return act.on(at::linear(in[0], packed.to_dense(), bias));
                   return call_boxed(*run, {in[0].contiguous(), packed, bias.defined() ? c10::IValue(bias) : c10::IValue(),
                                            act.onednn_name(), c10::List<std::optional<at::Scalar>>(), act.onednn_algorithm()});
                 }});
  return out;
}

// Size of a block of rows that stays in the cache between norm and activation.
constexpr int64_t kBlockBytes = 128 * 1024;

std::vector<ChainForm> norm_forms(const OpChain& chain) {
  const auto& norm = chain.steps[0].args;
  const auto shape = norm[1].toIntVector();
  const auto weight = norm[2].toTensor().detach(), bias = tensor_or_none(norm[3]);
  const auto eps = norm[4].toDouble();
  const Activation act(chain);
  const auto own = bytes(weight) + bytes(bias);
  std::vector<ChainForm> out;
  out.push_back({"in_place", own, [=](const Inputs& in) { return act.on(at::layer_norm(in[0], shape, weight, bias, eps)); }});
  if (!chain.inputs()[0].is_cpu()) return out;
  out.push_back({"blocks", own, [=](const Inputs& in) {
                   const at::Tensor x = in[0].contiguous(), y = at::empty_like(x);
                   const int64_t width = weight.numel(), rows = x.numel() / std::max<int64_t>(width, 1);
                   const int64_t block = std::max<int64_t>(kBlockBytes / (width * static_cast<int64_t>(x.element_size())), 1);
                   auto sizes = shape;
                   sizes.insert(sizes.begin(), rows);
                   const at::Tensor from = x.view(sizes), to = y.view(sizes);
                   at::parallel_for(0, (rows + block - 1) / block, 1, [&](int64_t begin, int64_t end) {
                     const c10::InferenceMode fresh;
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t first = i * block, count = std::min(block, rows - first);
                       to.narrow(0, first, count).copy_(act.on(at::layer_norm(from.narrow(0, first, count), shape, weight, bias, eps)));
                     }
                   });
                   return y;
                 }});
  return out;
}

std::vector<ChainForm> attention_forms(const OpChain& chain) {
  double scale = 1;
  for (const char* name : {"mul", "div"}) {
    const auto* step = chain.find(name);
    if (step == nullptr) continue;
    const auto& v = step->args[1];
    const double number = v.isTensor() ? v.toTensor().item().toDouble() : v.toScalar().toDouble();
    scale = *name == 'm' ? number : 1 / number;
  }
  return {{"attention", 0, [scale](const Inputs& in) {
             const bool heads = in[0].dim() >= 4;
             const auto four = [&](const at::Tensor& t) { return heads ? t : t.unsqueeze(1); };
             const at::Tensor y =
                 at::scaled_dot_product_attention(four(in[0]), four(in[1].transpose(-2, -1)), four(in[2]), {}, 0, false, scale);
             return heads ? y : y.squeeze(1);
           }}};
}

}  // namespace

std::vector<int64_t> conv_output_sizes(const at::Tensor& x, const at::Tensor& weight, const std::vector<int64_t>& stride,
                                       const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation) {
  auto out = x.sizes().vec();
  const size_t lead = out.size() - 3;  // index of the channels: 1 with a batch dimension, 0 without
  out[lead] = weight.size(0);
  for (size_t i = 0; i < 2; ++i) {
    const auto at = [&](const std::vector<int64_t>& v) { return v[v.size() == 1 ? 0 : i]; };
    auto& side = out[lead + 1 + i];
    side = (side + 2 * at(padding) - at(dilation) * (weight.size(2 + static_cast<int64_t>(i)) - 1) - 1) / at(stride) + 1;
  }
  return out;
}

std::vector<ChainForm> forms_of(const OpChain& chain) {
  switch (chain.kind) {
    case ChainKind::Conv:
      return conv_forms(chain);
    case ChainKind::Linear:
      return linear_forms(chain);
    case ChainKind::LayerNorm:
      return norm_forms(chain);
    case ChainKind::Attention:
      return attention_forms(chain);
  }
  return {};
}

}  // namespace npu_train::detail
