#include "npu_train/nn/unit.hpp"

#include <ATen/ops/ones.h>
#include <doctest/doctest.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "npu_train/core/error.hpp"

using npu_train::ErrorKind;
using npu_train::Unit;

namespace {

npu_train::ParameterSet parameters_of_units(torch::nn::Module& module) {
  npu_train::ParameterSet out;
  for (const auto& item : module.named_parameters()) out.add({.name = item.key(), .value = item.value()});
  return out;
}

struct TwoUnits : torch::nn::Module {
  TwoUnits() {
    first = register_module("first", std::make_shared<torch::nn::LinearImpl>(3, 3));
    second = register_module("second", std::make_shared<torch::nn::LinearImpl>(3, 2));
    scale = register_parameter("scale", at::ones({1}));
  }
  std::shared_ptr<torch::nn::LinearImpl> first, second;
  at::Tensor scale;
};

}  // namespace

TEST_CASE("a unit has the parameters of its module, and computes by itself until it has a runner") {
  TwoUnits net;
  const auto parameters = parameters_of_units(net);
  const Unit first("first", net.first, [&](const at::Tensor& x) { return net.first->forward(x); });
  const Unit second("second", net.second, [&](const at::Tensor& x) { return net.second->forward(x); });
  CHECK(first.name() == "first");
  CHECK(first.names_in(parameters) == std::vector<std::string>{"first.weight", "first.bias"});
  CHECK(second.names_in(parameters) == std::vector<std::string>{"second.weight", "second.bias"});

  const auto x = at::ones({1, 3});
  CHECK(first(x).equal(net.first->forward(x)));
  int runs = 0;
  const auto copy = first;
  first.set_runner([&](const npu_train::Unit::Function& forward, const at::Tensor& in) {
    ++runs;
    return forward(in) + 1;
  });
  CHECK(copy(x).equal(net.first->forward(x) + 1));  // the copy is the same unit
  CHECK(runs == 1);
  first.set_runner(nullptr);
  CHECK(copy(x).equal(net.first->forward(x)));
}

TEST_CASE("a unit needs a module and a function") {
  TwoUnits net;
  const auto kind_of = [&](auto&& make) {
    try {
      make();
    } catch (const npu_train::Error& e) {
      return e.kind();
    }
    return ErrorKind::Internal;
  };
  CHECK((kind_of([] { Unit("a", nullptr, [](const at::Tensor& x) { return x; }); }) == ErrorKind::Usage));
  CHECK((kind_of([&] { Unit("a", net.first, nullptr); }) == ErrorKind::Usage));
}
