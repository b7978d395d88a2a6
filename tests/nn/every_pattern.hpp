// Shared parts of the tests of fuse(): a module with all patterns, and options with which the result does not depend on times.
#pragma once

#include "npu_train/nn/fuse.hpp"

#include <torch/nn.h>
#include <torch/types.h>

#include <limits>
#include <map>
#include <memory>
#include <string>

namespace npu_train::testing {

// A user's module, made of libtorch's own layers, with every pattern. `reads_twice` adds a use that must be detected.
struct EveryPattern : torch::nn::Module {
  explicit EveryPattern(bool reads_twice = false) : reads_twice(reads_twice) {
    bn1->eval();
    for (auto& bn : {bn1, bn2, bn3}) {
      torch::nn::init::uniform_(bn->weight, 0.5, 1.5);
      torch::nn::init::normal_(bn->bias);
      bn->running_mean.normal_();
      bn->running_var.uniform_(0.5, 2.0);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::relu(bn1(conv1(x)));
    at::Tensor raw = conv2(y);
    at::Tensor z = bn2(raw);
    z += bn3(conv3(x));
    z = torch::relu_(z);
    if (reads_twice || (hungry && x.size(0) > 2)) z = z + raw;
    at::Tensor t = z.flatten(2).transpose(1, 2);  // [N, 36, 8]
    at::Tensor scores = torch::matmul(t, t.transpose(-2, -1)) / std::sqrt(8.0);
    t = torch::matmul(torch::softmax(scores, -1), t);
    t = torch::gelu(norm(t));
    t = torch::gelu(fc1(t));
    t = torch::relu(fc2(t.mean(1)));
    return fc3(t);
  }
  bool reads_twice, hungry = false;
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)))},
      conv2{register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 1).bias(false)))},
      conv3{register_module("conv3", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1).groups(1)))};
  torch::nn::BatchNorm2d bn1{register_module("bn1", torch::nn::BatchNorm2d(8))}, bn2{register_module("bn2", torch::nn::BatchNorm2d(8))},
      bn3{register_module("bn3", torch::nn::BatchNorm2d(8))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 16))}, fc2{register_module("fc2", torch::nn::Linear(16, 16))},
      fc3{register_module("fc3", torch::nn::Linear(16, 4))};
};

inline Model model_of(const std::shared_ptr<EveryPattern>& net) {
  return {.name = "every_pattern",
          .module = net,
          .forward = [net](const at::Tensor& x) { return net->forward(x); },
          .inputs = {image_input(3, 6)},
          .num_classes = 4};
}

// Returns options that keep every correct pattern, however slow it is.
inline FuseOptions whatever_the_time(bool keep_weights = false) {
  return {.min_saving = -std::numeric_limits<double>::infinity(),
          .max_memory_overhead = 1e9,
          .max_error = 1e-5,
          .keep_weights = keep_weights,
          .repeats = 1};
}

inline double off(const at::Tensor& a, const at::Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

inline std::map<std::string, std::string> patterns_by_layer(const FuseReport& report) {
  std::map<std::string, std::string> out;
  for (const auto& p : report.patterns) out[p.layer] = p.pattern;
  return out;
}

inline std::map<std::string, std::string> why_not(const FuseReport& report) {
  std::map<std::string, std::string> out;
  for (const auto& p : report.patterns)
    if (!p.kept) out[p.layer] = p.reason;
  return out;
}

inline bool reads_as_nan(const at::Tensor& t) { return t.isnan().all().item<bool>(); }

// A module with one function of the parameters w [8, 8] and b [8].
struct Small : torch::nn::Module {
  at::Tensor w = register_parameter("w", torch::randn({8, 8})), b = register_parameter("b", torch::randn({8}));
};
template <class Fn>
FusedModel fuse_small(const std::shared_ptr<Small>& net, const at::Tensor& example, Fn fn, bool keep_weights = false) {
  auto options = whatever_the_time(keep_weights);
  options.example = example;
  return fuse({.module = net, .forward = [net, fn](const at::Tensor& x) { return fn(*net, x); }}, options);
}

}  // namespace npu_train::testing
