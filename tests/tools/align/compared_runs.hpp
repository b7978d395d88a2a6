// Dumps of a small network, with and without a fault, for tests of their comparison.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include <functional>
#include <limits>
#include <map>
#include <string>

#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "testing.hpp"

namespace npu_train::testing {

struct CompareNet : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 6))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(6, 6))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(6, 3))};
  double eps = 1e-5;
  bool clamp_second = false, bf16_second = false;
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::layer_norm(first(x), {6}, norm->weight, norm->bias, eps);
    if (bf16_second) {
      y = at::linear(y.to(at::kBFloat16), second->weight.to(at::kBFloat16), second->bias.to(at::kBFloat16)).to(at::kFloat);
    } else {
      y = at::linear(y, second->weight, second->bias);
    }
    return head(at::gelu(y));
  }
};

// What is changed in one run.
struct Fault {
  std::function<void(CompareNet&)> in_net{};
  std::function<void(CompareNet&)> in_gradients{};
  double lr = 0.1, input = 1, loss = 1, clip = 1, momentum = 0;
  std::map<std::string, std::string> facts{};
};

class Runs {
 public:
  std::string run(const std::string& name, const Fault& fault = {}, DumpOptions options = {.task = "tensor"}) {
    at::manual_seed(3);
    CompareNet net;
    if (fault.in_net) fault.in_net(net);
    const at::Tensor x = at::randn({8, 6}) * fault.input;
    Sgd sgd(parameters_of(net), {.lr = fault.lr, .momentum = fault.momentum});
    options.dir = (dir_ / name).string();
    Dumper dumper(options, dumped_model(net), 0, fault.facts);
    dumper.watch(sgd);
    for (int step = 0; step < 2; ++step) {
      sgd.zero_grad();
      dumper.start();
      const at::Tensor loss = net.forward(x).square().mean() * fault.loss;
      dumper.loss(loss);
      loss.backward();
      if (fault.in_gradients) fault.in_gradients(net);
      dumper.stop();
      for (const auto& p : net.parameters()) p.mutable_grad().mul_(fault.clip);
      sgd.step();
      dumper.step();
    }
    return options.dir;
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

// Facts of another device, where rounding is expected.
inline const std::map<std::string, std::string> kElsewhere = {{"device", "npu:0"}};

inline DumpComparison with_fault(const Fault& fault, const DumpOptions& options = {.task = "tensor"}, const CompareOptions& how = {}) {
  Runs runs;
  return compare_dumps(runs.run("a", fault, options), runs.run("b", {}, options), how);
}

inline const auto kNanWeight = [](CompareNet& net) {
  const at::NoGradGuard no_grad;
  net.norm->weight.fill_(std::numeric_limits<float>::quiet_NaN());
};

// Returns the complete explanation of a divergence, for example "a weight ... zero; not finite".
inline std::string explained(const DumpComparison& result) {
  auto out = result.first.sentence;
  for (const auto& text : result.first.likely) out += "; " + text;
  for (const auto& text : result.first.advice) out += "; " + text;
  return out;
}

}  // namespace npu_train::testing
