#include "testing.hpp"

#include <ATen/ops/ones.h>
#include <torch/nn.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

struct MixedNet : torch::nn::Module {
  MixedNet() {
    body = register_module("body", torch::nn::Sequential(torch::nn::Conv2d(3, 4, 1), torch::nn::BatchNorm2d(4)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    fc = register_module("fc", torch::nn::Linear(4, 2));
  }
  torch::nn::Sequential body{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear fc{nullptr};
};

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, value] : tensors) out.push_back(name);
  return out;
}

}  // namespace

TEST_CASE("parameters and buffers by name, sharing the tensors") {
  MixedNet net;
  const auto parameters = parameters_of(net);
  REQUIRE(parameters.size() == 8);
  CHECK(parameters[0].name == "body.0.weight");
  CHECK(parameters[7].name == "fc.bias");
  CHECK(parameters.find("fc.weight")->value.is_same(net.fc->weight));
  CHECK(names(buffers_of(net)) == std::vector<std::string>{"body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked"});
  CHECK(named_state(net).size() == 11);
}

TEST_CASE("frozen parameters are listed, undefined ones are not, tied ones once") {
  struct Tied : torch::nn::Module {
    Tied() {
      a = register_module("a", torch::nn::Linear(3, 3));
      b = register_module("b", torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false)));
      b->weight = b->register_parameter("tied", a->weight);
      a->weight.requires_grad_(false);
    }
    torch::nn::Linear a{nullptr}, b{nullptr};
  } net;
  const auto parameters = parameters_of(net);
  REQUIRE(parameters.find("a.weight") != nullptr);
  CHECK(parameters.find("b.tied") == nullptr);
  CHECK(std::any_of(parameters.aliases().begin(), parameters.aliases().end(), [](const auto& a) { return a.first == "b.tied"; }));
  CHECK(parameters.find("b.bias") == nullptr);
  const auto state = names(named_state(net));
  CHECK(std::count(state.begin(), state.end(), "b.tied") == 1);
  CHECK(std::count(state.begin(), state.end(), "b.bias") == 0);
}

TEST_CASE("normalisation layers and their parameters") {
  MixedNet net;
  CHECK(is_norm_layer(*net.norm));
  CHECK_FALSE(is_norm_layer(*net.fc));
  CHECK(norm_parameters_of(net) == std::vector<std::string>{"body.1.weight", "body.1.bias", "norm.weight", "norm.bias"});
}

TEST_CASE("modules by path") {
  MixedNet net;
  CHECK(find_module(net, "") == &net);
  CHECK(find_module(net, "body.1")->as<torch::nn::BatchNorm2dImpl>() != nullptr);
  CHECK(find_module(net, "fc") == net.fc.get());
  CHECK(find_module(net, "body.2") == nullptr);
  CHECK(find_module(net, "fc.weight") == nullptr);
}

namespace {

torch::nn::Sequential two_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
}

std::vector<std::string> trained(const torch::nn::Module& module) {
  std::vector<std::string> out;
  for (const auto& p : parameters_of(module))
    if (p.value.requires_grad()) out.push_back(p.name);
  return out;
}

}  // namespace

TEST_CASE("the parameters that patterns match are frozen, and the others get their gradients") {
  auto net = two_layers();
  CHECK(freeze_parameters(*net, {"0", "*.bias"}) == std::vector<std::string>{"0.weight", "0.bias", "1.bias", "2.bias"});
  CHECK(trained(*net) == std::vector<std::string>{"1.weight", "2.weight"});
  net->forward(torch::randn({5, 3})).sum().backward();
  for (const auto& p : parameters_of(*net)) CHECK_MESSAGE(p.value.grad().defined() == p.value.requires_grad(), p.name);
}

TEST_CASE("a pattern that matches nothing and a model without anything to train are refused, and nothing is frozen") {
  auto net = two_layers();
  const auto unknown = error_of([&] { freeze_parameters(*net, {"0", "head"}); });
  CHECK(unknown.kind() == ErrorKind::Usage);
  CHECK(has(unknown.what(), "'head' matches no parameter of the model; it has 0.weight, 0.bias, "));
  CHECK(has(error_of([&] { freeze_parameters(*net, {"*"}); }).what(), "no parameter would be left to train"));
  CHECK(trained(*net).size() == 6);
}

TEST_CASE("every submodule evaluates for the scope, and gets its own mode back") {
  torch::nn::ModuleList inner(torch::nn::Dropout(0.5));
  torch::nn::ModuleList net(torch::nn::Linear(2, 2), inner, torch::nn::Dropout(0.5));
  inner->eval();  // like a frozen part of a network that is trained
  {
    const EvaluationMode evaluation(*net);
    for (const auto& m : net->modules()) CHECK_FALSE(m->is_training());
  }
  CHECK(net->is_training());
  CHECK(net[0]->is_training());
  CHECK_FALSE(inner->is_training());
  CHECK_FALSE(inner[0]->is_training());
  CHECK(net[2]->is_training());
}
