#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "npu_train/trace/op_observer.hpp"

#include <torch/nn/modules.h>

using namespace npu_train;

namespace {

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(3, 4, 3))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(4))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(4, 2))};
  at::Tensor forward(const at::Tensor& x) { return head(at::relu(norm(conv(x))).mean({2, 3})); }
};

ParameterSet parameters_of(const torch::nn::Module& net) {
  ParameterSet out;
  for (const auto& p : net.named_parameters()) out.add({.name = p.key(), .value = p.value()});
  return out;
}

std::vector<std::string> seen_in(Net& net, bool every) {
  std::vector<std::string> out;
  const OpObserver observer(
      parameters_of(net), [&](const SeenOp& op) { out.push_back(op.name + (op.parameter.empty() ? "" : " " + op.parameter)); }, every);
  net.forward(at::rand({2, 3, 5, 5}));
  return out;
}

}  // namespace

TEST_CASE("operators come in order with the parameter that identifies their layer") {
  Net net;
  std::string seen;
  for (const auto& op : seen_in(net, false)) seen += op + "; ";
  CHECK(seen == "conv2d conv.weight; batch_norm norm.weight; addmm head.bias; ");
  const auto every = seen_in(net, true);
  const auto has_op = [&](const std::string& name) { return std::find(every.begin(), every.end(), name) != every.end(); };
  CHECK(has_op("relu"));
  CHECK(has_op("mean"));
  CHECK_FALSE(has_op("convolution"));  // not reported, because it runs inside conv2d
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto cast = seen_in(net, false);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(cast[0] == "conv2d conv.weight");
}

TEST_CASE("an operator that an interpreter calls with its complete stack has its own arguments and results only") {
  Net net;
  const at::Tensor other = at::rand({7}), x = at::rand({2, 4});
  int calls = 0;
  const OpObserver observer(parameters_of(net), [&](const SeenOp& op) {
    ++calls;
    REQUIRE(op.inputs.size() == 3);
    CHECK(op.inputs[0].toTensor().is_same(x));
    CHECK(op.tensors.size() == 3);
    CHECK(op.parameter == "head.weight");
    REQUIRE(op.outputs.size() == 1);
    CHECK((op.output.sizes() == at::IntArrayRef{2, 2}));
    CHECK(op.flops == 2 * 2 * 2 * 4);
  });
  torch::jit::Stack stack{other, x, net.head->weight, net.head->bias};
  c10::Dispatcher::singleton().findSchemaOrThrow("aten::linear", "").callBoxed(&stack);
  CHECK(calls == 1);
  CHECK(observer.error() == nullptr);
  REQUIRE(stack.size() == 2);
  CHECK(stack[0].toTensor().is_same(other));
}

TEST_CASE("inputs and output are the caller's, FLOPs are counted, and what the observer runs is not seen") {
  Net net;
  int calls = 0;
  int64_t flops = 0;
  const at::Tensor x = at::rand({2, 3, 5, 5});
  const OpObserver observer(parameters_of(net), [&](const SeenOp& op) {
    if (calls++ == 0) {
      CHECK(op.inputs[0].toTensor().is_same(x));
      CHECK((op.output.sizes() == at::IntArrayRef{2, 4, 3, 3}));
      CHECK(op.output.requires_grad());
      flops = op.flops;
    }
    at::conv2d(x, net.conv->weight);
  });
  net.forward(x);
  CHECK(calls == 3);
  CHECK(flops == 2 * 2 * 27 * 4 * 9);
  CHECK(observer.error() == nullptr);
}

TEST_CASE("a cast of a parameter counts as the parameter") {
  Net net;
  std::string seen;
  const OpObserver observer(parameters_of(net), [&](const SeenOp& op) {
    if (!op.parameter.empty()) seen += op.name + " " + op.parameter + (op.tensors[1].known.empty() ? " ?" : "") + "; ";
  });
  const at::Tensor weight = net.conv->weight.to(at::kBFloat16);
  at::conv2d(at::rand({2, 3, 5, 5}, at::kBFloat16), weight);
  CHECK(seen == "conv2d conv.weight; ");
}

TEST_CASE("a parameter is known behind a cast and views of it, in lists too; a buffer is named and makes no layer") {
  Net net;
  std::string seen;
  OpObserver observer(
      parameters_of(net),
      [&](const SeenOp& op) {
        if (op.name != "cat" && op.name != "add") return;
        seen += op.name + " [" + op.parameter + "]";
        for (const auto& input : op.tensors) seen += " " + (input.known.empty() ? "?" : input.known);
        seen += "; ";
      },
      /*every=*/true);
  observer.watch("mean", net.norm->running_mean);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto x = at::rand({2, 4}, dtype);
    at::cat({net.head->weight.to(dtype).view({1, 2, 4}).expand({2, 2, 4}).select(0, 1), x});
    at::cat({x, net.norm->running_mean.to(dtype).unsqueeze(0)});
    at::add(x, net.conv->bias.to(dtype));
    CHECK(seen == "cat [head.weight] head.weight ?; cat [] ? mean; add [conv.bias] ? conv.bias; ");
    seen.clear();
  }
}

TEST_CASE("an exception in the observer is kept from the operator and noted") {
  Net net;
  const OpObserver observer(parameters_of(net), [](const SeenOp&) { throw std::runtime_error("mine"); });
  net.forward(at::rand({2, 3, 5, 5}));
  CHECK_THROWS_WITH(std::rethrow_exception(observer.error()), "mine");
}

TEST_CASE("operators of a backward pass are shown to listeners that request them") {
  struct Names final : OpListener {
    bool backward = false;
    std::vector<std::string> seen;
    void op_ended(const SeenOp& op) override { seen.push_back(op.name); }
    bool sees_all() const override { return backward; }
  };
  for (const bool backward : {false, true}) {
    at::Tensor w = at::randn({3}).requires_grad_();
    const at::Tensor loss = at::relu(w).sum();
    Names names;
    names.backward = backward;
    {
      const OpObserver observer({}, names, /*every=*/true);
      loss.backward();
    }
    CHECK((std::find(names.seen.begin(), names.seen.end(), "threshold_backward") != names.seen.end()) == backward);
  }
}
