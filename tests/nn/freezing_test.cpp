#include "testing.hpp"

#include "npu_train/nn/freezing.hpp"

#include <torch/nn.h>

#include "npu_train/nn/named_state.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

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
