#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/nn/named_state.hpp"
#include "npu_train/nn/op_observer.hpp"
#include "npu_train/precision/autocast.hpp"

#include <torch/nn/modules.h>

using namespace npu_train;

namespace {

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(3, 4, 3))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(4))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(4, 2))};
  at::Tensor forward(const at::Tensor& x) { return head(at::relu(norm(conv(x))).mean({2, 3})); }
};

std::vector<std::string> seen_in(Net& net, bool every) {
  std::vector<std::string> out;
  const OpObserver observer(
      parameters_of(net), [&](const SeenOp& op) { out.push_back(op.name + (op.parameter.empty() ? "" : " " + op.parameter)); }, every);
  net.forward(at::rand({2, 3, 5, 5}));
  return out;
}

}  // namespace

TEST_CASE("operators come in order with the parameter that tells their layer") {
  Net net;
  std::string seen;
  for (const auto& op : seen_in(net, false)) seen += op + "; ";
  CHECK(seen == "conv2d conv.weight; batch_norm norm.weight; addmm head.bias; ");
  const auto every = seen_in(net, true);
  const auto has_op = [&](const std::string& name) { return std::find(every.begin(), every.end(), name) != every.end(); };
  CHECK(has_op("relu"));
  CHECK(has_op("mean"));
  CHECK_FALSE(has_op("convolution"));  // inside conv2d
  const Autocast region(Device{}, at::kBFloat16);
  CHECK(seen_in(net, false)[0] == "conv2d conv.weight");
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
  CHECK_FALSE(observer.failed());
}

TEST_CASE("an exception in the observer is kept from the operator and noted") {
  Net net;
  const OpObserver observer(parameters_of(net), [](const SeenOp&) { throw std::runtime_error("mine"); });
  net.forward(at::rand({2, 3, 5, 5}));
  CHECK(observer.failed());
}
