// Models for the tests of export: single operators, and networks as users write them.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train::testing {

/// A function of the fields "x", "y", "z" of a batch. The first dimension of each field is the batch dimension.
struct OnnxCase {
  std::string name;
  std::vector<at::Tensor> inputs;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> forward;
};

inline Batch batch_of(const std::vector<at::Tensor>& tensors) {
  const char* names[] = {"x", "y", "z"};
  Batch out;
  for (size_t i = 0; i < tensors.size(); ++i) out.set(names[i], tensors[i]);
  out.size = out.rows();
  return out;
}

inline Model model_of(const std::function<Outputs(const Batch&)>& forward, std::shared_ptr<torch::nn::Module> module = nullptr) {
  Model model;
  model.module = module ? std::move(module) : std::make_shared<torch::nn::Module>();
  model.forward = forward;
  return model;
}

inline Model model_of(const OnnxCase& c) {
  return model_of([c](const Batch& batch) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, value] : batch.fields()) tensors.push_back(value);
    return Outputs(c.forward(tensors));
  });
}

/// Repeats rows of the inputs: the same values at another batch size.
inline std::vector<at::Tensor> rows_of(const std::vector<at::Tensor>& tensors, int64_t count) {
  std::vector<at::Tensor> out;
  for (const auto& t : tensors) out.push_back(t.index_select(0, at::arange(count).remainder(t.size(0))));
  return out;
}

using Xs = const std::vector<at::Tensor>&;

inline std::vector<OnnxCase> layer_cases() {
  const auto x = at::randn({4, 6, 8, 8}), w = at::randn({8, 3, 3, 3}) * 0.3, b = at::randn({8});
  const auto tokens = at::randn({4, 5, 6}), m = at::randn({7, 6}), bias = at::randn({7});
  const auto g = at::rand({6}) + 0.5, o = at::randn({6}), mean = at::randn({6}), var = at::rand({6}) + 0.1;
  const auto volume = at::randn({4, 2, 4, 4, 4}), signal = at::randn({4, 6, 9});
  const auto wt = at::randn({6, 4, 3, 2}) * 0.3;
  const auto q = at::randn({4, 2, 5, 3}), ids = at::randint(10, {4, 5}, at::kLong), table = at::randn({10, 3});
  const auto keep = (at::arange(25) % 3).ne(0).view({5, 5});
  return {
      {"conv1d",
       {signal},
       [=](Xs v) {
         return at::conv1d(v[0], at::ones({2, 6, 3}), {}, 2, 1);
       }},
      {"conv2d",
       {x},
       [=](Xs v) {
         return at::conv2d(v[0], w, b, {2, 1}, {1, 0}, {1, 2}, 2);
       }},
      {"conv2d_same",
       {x},
       [=](Xs v) {
         return at::conv2d(v[0], at::ones({2, 6, 4, 3}), {}, 1, "same");
       }},
      {"conv3d",
       {volume},
       [=](Xs v) {
         return at::conv3d(v[0], at::ones({2, 2, 2, 2, 2}));
       }},
      {"conv_transpose2d",
       {x},
       [=](Xs v) {
         return at::conv_transpose2d(v[0], wt, at::ones({8}), {2, 3}, {1, 0}, {1, 2}, 2, {1, 2});
       }},
      {"convolution",
       {x},
       [=](Xs v) {
         return at::convolution(v[0], w, b, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 2);
       }},
      {"batch_norm", {x}, [=](Xs v) { return at::batch_norm(v[0], g, o, mean, var, false, 0.1, 1e-2, false); }},
      {"batch_norm_bare", {x}, [=](Xs v) { return at::batch_norm(v[0], {}, {}, mean, var, false, 0.1, 1e-5, false); }},
      {"instance_norm", {x}, [=](Xs v) { return at::instance_norm(v[0], g, o, {}, {}, true, 0.1, 1e-2, false); }},
      {"group_norm", {x}, [=](Xs v) { return at::group_norm(v[0], 3, g, o, 1e-2, false); }},
      {"layer_norm", {tokens}, [=](Xs v) { return at::layer_norm(v[0] * 0.1, {6}, g, o, 1e-2); }},
      {"layer_norm_bare",
       {x},
       [=](Xs v) {
         return at::layer_norm(v[0], {8, 8});
       }},
      {"linear", {at::randn({4, 6})}, [=](Xs v) { return at::linear(v[0], m, bias); }},
      {"linear_tokens", {tokens}, [=](Xs v) { return at::linear(v[0], m, bias); }},
      {"addmm", {at::randn({4, 6})}, [=](Xs v) { return at::addmm(bias, v[0], m.t(), 0.5, 2); }},
      {"baddbmm", {q.flatten(1, 2), at::randn({4, 3, 10})}, [=](Xs v) { return at::baddbmm(at::ones({10}), v[0], v[1], 0.5, 2); }},
      {"matmul", {q}, [=](Xs v) { return at::matmul(v[0], v[0].transpose(-1, -2)); }},
      {"embedding", {ids}, [=](Xs v) { return at::embedding(table, v[0]); }},
      {"attention", {q}, [=](Xs v) { return at::scaled_dot_product_attention(v[0], v[0] * 2, v[0] + 1); }},
      {"attention_causal", {q}, [=](Xs v) { return at::scaled_dot_product_attention(v[0], v[0] * 2, v[0] + 1, {}, 0, true, 0.7); }},
      {"attention_masked", {q}, [=](Xs v) { return at::scaled_dot_product_attention(v[0], v[0], v[0], keep); }},
      {"attention_biased",
       {q},
       [=](Xs v) {
         return at::scaled_dot_product_attention(v[0], v[0], v[0], at::ones({5, 5}).tril());
       }},
      {"max_pool2d",
       {x},
       [=](Xs v) {
         return at::max_pool2d(v[0], {3, 2}, {2, 1}, {1, 0}, {1, 2});
       }},
      {"max_pool2d_ceil", {x}, [=](Xs v) { return at::max_pool2d(v[0], 3, 2, 0, 1, true); }},
      {"avg_pool2d", {x}, [=](Xs v) { return at::avg_pool2d(v[0], 3, 2, 1, false, true); }},
      {"avg_pool2d_inside", {x}, [=](Xs v) { return at::avg_pool2d(v[0], 3, 2, 1, false, false); }},
      {"avg_pool1d", {signal}, [=](Xs v) { return at::avg_pool1d(v[0], 3, 2, 1); }},
      {"adaptive_avg_pool2d",
       {x},
       [=](Xs v) {
         return at::adaptive_avg_pool2d(v[0], {4, 2});
       }},
      {"adaptive_avg_pool2d_one",
       {x},
       [=](Xs v) {
         return at::adaptive_avg_pool2d(v[0], {1, 1});
       }},
      {"nearest",
       {x},
       [=](Xs v) {
         return at::upsample_nearest2d(v[0], at::IntArrayRef{16, 24});
       }},
      {"nearest_to_size",
       {x},
       [=](Xs v) {
         return at::upsample_nearest2d(v[0], at::IntArrayRef{12, 10});
       }},
      {"bilinear",
       {x},
       [=](Xs v) {
         return at::upsample_bilinear2d(v[0], at::IntArrayRef{16, 16}, false);
       }},
      {"bilinear_corners",
       {x},
       [=](Xs v) {
         return at::upsample_bilinear2d(v[0], at::IntArrayRef{11, 16}, true);
       }},
      {"pixel_shuffle", {at::randn({4, 8, 3, 2})}, [=](Xs v) { return at::pixel_shuffle(v[0], 2); }},
      {"dropout", {x}, [=](Xs v) { return at::dropout(v[0], 0.5, false); }},
  };
}

inline std::vector<OnnxCase> arithmetic_cases() {
  const auto x = at::randn({4, 3, 5}) * 2, y = at::randn({4, 3, 5}), positive = at::rand({4, 3, 5}) + 0.1;
  const auto ids = at::randint(-5, 6, {4, 3}, at::kLong);
  std::vector<OnnxCase> out;
  const auto unary = [&](const std::string& name, at::Tensor (*fn)(const at::Tensor&), const at::Tensor& on) {
    out.push_back({name, {on}, [fn](Xs v) { return fn(v[0]); }});
  };
  unary("relu", at::relu, x), unary("sigmoid", at::sigmoid, x), unary("tanh", at::tanh, x), unary("exp", at::exp, x),
      unary("log", at::log, positive);
  unary("sqrt", at::sqrt, positive), unary("rsqrt", at::rsqrt, positive), unary("reciprocal", at::reciprocal, positive),
      unary("neg", at::neg, x);
  unary("abs", at::abs, x), unary("erf", at::erf, x), unary("sin", at::sin, x), unary("cos", at::cos, x), unary("floor", at::floor, x);
  unary("ceil", at::ceil, x), unary("sign", at::sign, x), unary("silu", at::silu, x), unary("mish", at::mish, x);
  unary("log_sigmoid", at::log_sigmoid, x), unary("selu", at::selu, x), unary("hardswish", at::hardswish, x);
  unary("hardsigmoid", at::hardsigmoid, x), unary("relu6", at::relu6, x), unary("square", at::square, x);
  const std::vector<OnnxCase> more{
      {"gelu", {x}, [](Xs v) { return at::gelu(v[0]); }},
      {"gelu_tanh", {x}, [](Xs v) { return at::gelu(v[0], "tanh"); }},
      {"elu", {x}, [](Xs v) { return at::elu(v[0], 0.7, 1.5); }},
      {"celu", {x}, [](Xs v) { return at::celu(v[0], 0.7); }},
      {"leaky_relu", {x}, [](Xs v) { return at::leaky_relu(v[0], 0.3); }},
      {"prelu",
       {x},
       [](Xs v) {
         return at::prelu(v[0], at::tensor({0.1F, 0.2F, 0.3F}));
       }},
      {"softplus", {x}, [](Xs v) { return at::softplus(v[0], 2); }},
      {"hardtanh", {x}, [](Xs v) { return at::hardtanh(v[0], -0.5, 0.7); }},
      {"clamp", {x}, [](Xs v) { return at::clamp(v[0], -0.5, std::nullopt); }},
      {"clamp_max", {x}, [](Xs v) { return at::clamp_max(v[0], 0.5); }},
      {"add_alpha", {x, y}, [](Xs v) { return at::add(v[0], v[1], 2) + 1; }},
      {"sub_alpha", {x, y}, [](Xs v) { return at::sub(v[0], v[1], 0.5) - 3; }},
      {"rsub", {x, y}, [](Xs v) { return at::rsub(v[0], v[1], 3) + at::rsub(v[0], 1.5); }},
      {"mul", {x, y}, [](Xs v) { return v[0] * v[1] * 0.3; }},
      {"div", {x, positive}, [](Xs v) { return v[0] / v[1] / 3; }},
      {"div_floor", {x, positive}, [](Xs v) { return at::div(v[0], v[1], "floor"); }},
      {"div_integers", {ids}, [](Xs v) { return v[0] / 2; }},
      {"div_trunc", {ids}, [](Xs v) { return at::div(v[0], 2, "trunc"); }},
      {"pow", {positive, y}, [](Xs v) { return v[0].pow(v[1]) + v[0].pow(3); }},
      {"maximum", {x, y}, [](Xs v) { return at::maximum(v[0], v[1]) + at::minimum(v[0], v[1] * 2); }},
      {"promotion", {ids, y}, [](Xs v) { return v[0].unsqueeze(-1) * v[1].slice(2, 0, 1) + v[0].unsqueeze(-1); }},
      {"comparisons", {x, y}, [](Xs v) { return (v[0] > v[1]).to(at::kFloat) + (v[0] <= 0.1) * 2 + v[0].ge(v[1]) * 4 + v[0].lt(0) * 8; }},
      {"equality", {ids}, [](Xs v) { return (v[0] == 2).to(at::kLong) + (v[0] != 0.5) * 3; }},
      {"logic", {x, y}, [](Xs v) { return ((v[0] > 0).logical_and(v[1] > 0) | (v[0] < -1) | (v[1] < -1).logical_not()).to(at::kInt); }},
      {"where", {x, y}, [](Xs v) { return at::where(v[0] > 0, v[0], v[1]); }},
      {"masked_fill", {x, y}, [](Xs v) { return v[0].masked_fill(v[1] > 0, -3); }},
      {"addcmul", {x, y}, [](Xs v) { return at::addcmul(v[0], v[0], v[1], 2); }},
      {"addcdiv", {x, positive}, [](Xs v) { return at::addcdiv(v[0], v[0], v[1], 0.5); }},
      {"in_place", {x, y}, [](Xs v) { return v[0].clone().mul_(2).add_(v[1]).relu_(); }},
  };
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

inline std::vector<OnnxCase> shape_cases() {
  const auto x = at::randn({4, 3, 4, 2}), m = at::randn({4, 6}), index = at::randint(3, {4, 2}, at::kLong);
  return {
      {"view",
       {x},
       [](Xs v) {
         return v[0].view({v[0].size(0), 3, 8}) + 0;
       }},
      {"view_rows",
       {x},
       [](Xs v) {
         return v[0].reshape({v[0].size(0) * 3, 8});
       }},
      {"view_folds_batch",
       {x},
       [](Xs v) {
         return v[0].view({-1, 2, 12}).transpose(0, 1).contiguous().view({2, v[0].size(0), 12});
       }},
      {"flatten", {x}, [](Xs v) { return v[0].flatten(1); }},
      {"unflatten",
       {m},
       [](Xs v) {
         return v[0].unflatten(1, {2, 3});
       }},
      {"squeeze", {x}, [](Xs v) { return v[0].unsqueeze(2).unsqueeze(-1).squeeze(2).slice(1, 0, 1).squeeze(); }},
      {"expand",
       {m},
       [](Xs v) {
         return v[0].unsqueeze(1).expand({-1, 3, 6}) + at::ones({1, 1, 6}).expand({v[0].size(0), 3, 6});
       }},
      {"repeat",
       {m},
       [](Xs v) {
         return v[0].repeat({2, 1, 3});
       }},
      {"permute",
       {x},
       [](Xs v) {
         return v[0].permute({0, -1, 1, 2}).transpose(-1, 1);
       }},
      {"t", {m}, [](Xs v) { return v[0].t(); }},
      {"cat",
       {x, x + 1},
       [](Xs v) {
         return at::cat({v[0], v[1], at::ones({1, 3, 4, 2}).expand_as(v[0])}, -2);
       }},
      {"stack",
       {m},
       [](Xs v) {
         return at::stack({v[0], v[0] * 2}, -1);
       }},
      {"slice", {x}, [](Xs v) { return v[0].slice(2, 1, -1, 2) + v[0].narrow(2, 3, 1) + v[0].slice(0, 0, v[0].size(0)).slice(2, -1); }},
      {"select", {x}, [](Xs v) { return v[0].select(1, 2) + v[0].select(1, -3); }},
      {"select_row", {x}, [](Xs v) { return v[0].select(0, 1); }},
      {"split",
       {m},
       [](Xs v) {
         return v[0].split(2, 1)[2] * v[0].chunk(3, 1)[0] + v[0].split_with_sizes({4, 2}, 1)[1];
       }},
      {"split_batch",
       {m},
       [](Xs v) {
         return v[0].repeat({2, 1}).chunk(2, 0)[1];
       }},
      {"unbind", {x}, [](Xs v) { return v[0].unbind(1)[2] - v[0].unbind(1)[0]; }},
      {"casts", {x}, [](Xs v) { return (v[0] * 3).to(at::kLong).to(at::kFloat).type_as(v[0]); }},
      {"copy", {m}, [](Xs v) { return at::zeros_like(v[0]).copy_(at::arange(6)) + v[0]; }},
      {"fill", {m}, [](Xs v) { return v[0].clone().fill_(2) + v[0].clone().zero_() + v[0]; }},
      {"pad",
       {x},
       [](Xs v) {
         return at::constant_pad_nd(v[0], {1, 2, 0, 1}, 0.5);
       }},
      {"pad_reflect",
       {x},
       [](Xs v) {
         return at::reflection_pad2d(v[0], {1, 1, 2, 0});
       }},
      {"pad_edge",
       {x},
       [](Xs v) {
         return at::replication_pad2d(v[0], {1, 1, 2, 0});
       }},
      {"index_select",
       {x},
       [](Xs v) {
         return v[0].index_select(1, at::tensor({2, 0}, at::kLong));
       }},
      {"gather", {m, index}, [](Xs v) { return at::gather(v[0], 1, v[1]); }},
      {"index",
       {index},
       [](Xs v) {
         return at::arange(12, at::kFloat).view({3, 4}).index({v[0]});
       }},
      {"triangles", {x}, [](Xs v) { return v[0].tril(-1) + v[0].triu(1); }},
      {"roll",
       {x},
       [](Xs v) {
         return v[0].roll({1, -1}, {2, 3});
       }},
      {"zeros_of_batch",
       {m},
       [](Xs v) {
         return at::zeros({v[0].size(0), 2}).add(v[0].new_ones({v[0].size(0), 1})).add(at::full({v[0].size(0), 2}, 0.5)) +
                v[0].slice(1, 0, 2);
       }},
      {"arange_of_batch", {m}, [](Xs v) { return v[0] + at::arange(v[0].size(0)).unsqueeze(1) * 2; }},
      {"mean",
       {x},
       [](Xs v) {
         return v[0].mean({2, 3}) + v[0].mean({2, 3}, true).flatten(1) + v[0].mean({-1, 2});
       }},
      {"mean_all",
       {x},
       [](Xs v) {
         return v[0].mean({1, 2, 3}) + at::ones({3}).mean();
       }},
      {"sum",
       {x},
       [](Xs v) {
         return v[0].sum({1, -1}) + v[0].sum(1).sum(-1);
       }},
      {"extremes",
       {x},
       [](Xs v) {
         return v[0].amax({1, 2}) - v[0].amin(-2).sum(1);
       }},
      {"max_with_indices", {x}, [](Xs v) { return std::get<0>(v[0].max(1)) + std::get<1>(v[0].min(1, false)); }},
      {"max_of_two", {m}, [](Xs v) { return at::max(v[0], v[0] * 2); }},
      {"argmax", {x}, [](Xs v) { return v[0].argmax(1, true) - v[0].argmin(1, true); }},
      {"norms", {m}, [](Xs v) { return at::linalg_vector_norm(v[0], 2, {1}, true) * at::linalg_vector_norm(v[0], 1, {1}); }},
      {"logsumexp", {m}, [](Xs v) { return v[0].logsumexp({1}); }},
      {"softmax", {m}, [](Xs v) { return v[0].softmax(1) + v[0].log_softmax(-1); }},
      {"cumsum", {m}, [](Xs v) { return v[0].cumsum(-1); }},
      {"topk", {m}, [](Xs v) { return std::get<0>(v[0].topk(3, 1)) + std::get<1>(v[0].topk(3, 1, false)); }},
  };
}

}  // namespace npu_train::testing
