#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "npu_train/nn/module_state.hpp"
#include "npu_train/nn/summary.hpp"

using namespace npu_train;

namespace {

// A user's network, made of libtorch's own layers.
struct SmallImageNet : torch::nn::Module {
  SmallImageNet() {
    namespace nn = torch::nn;
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2).padding(1)));
    grouped = register_module("grouped", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1).groups(4).bias(false)));
    bn = register_module("bn", nn::BatchNorm2d(8));
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 4, 2).stride(2).bias(false)));
    fc1 = register_module("fc1", nn::Linear(4, 6));
    fc2 = register_module("fc2", nn::Linear(nn::LinearOptions(6, 5).bias(false)));
    drop = register_module("drop", nn::Dropout(0.5));
    unused = register_module("unused", nn::Linear(2, 2));
    bn->eval();
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = at::relu(bn->forward(grouped->forward(conv->forward(x))));
    return fc2->forward(drop->forward(fc1->forward(up->forward(y).mean({2, 3}))));
  }
  torch::nn::Conv2d conv{nullptr}, grouped{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
  torch::nn::ConvTranspose2d up{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr}, unused{nullptr};
  torch::nn::Dropout drop{nullptr};
};

Model image_model(const std::shared_ptr<SmallImageNet>& net) {
  Model model;
  model.name = "net";
  model.module = net;
  model.forward = [net](const at::Tensor& x) { return net->forward(x); };
  model.inputs = {image_input(3, 16)};
  return model;
}

const LayerSummary& row(const ModelSummary& summary, const std::string& name) {
  for (const auto& layer : summary.layers)
    if (layer.name == name) return layer;
  FAIL("no row ", name);
  return summary.layers.front();
}

}  // namespace

TEST_CASE("layers of a user's module: names, types, shapes, parameters, FLOPs") {
  const auto net = std::make_shared<SmallImageNet>();
  const auto s = summarize(image_model(net));
  CHECK(s.input_shape == std::vector<int64_t>{1, 3, 16, 16});
  REQUIRE(s.layers.size() == 7);
  CHECK(s.layers[0].name == "conv");
  CHECK(s.layers[0].type == "Conv2d");
  CHECK(s.layers[0].output_shape == std::vector<int64_t>{1, 8, 8, 8});
  CHECK(s.layers[0].parameters == 3 * 8 * 9 + 8);
  CHECK(s.layers[0].flops == 2 * 8 * 64 * 27);
  CHECK(row(s, "grouped").flops == 2 * 8 * 64 * 18);
  CHECK(row(s, "bn").flops == 0);
  CHECK(row(s, "bn").type == "BatchNorm2d");
  CHECK(row(s, "bn").parameters == 16);
  CHECK(row(s, "up").output_shape == std::vector<int64_t>{1, 4, 16, 16});
  CHECK(row(s, "up").flops == 2 * 8 * 64 * 4 * 4);
  CHECK(row(s, "fc1").flops == 2 * 4 * 6);
  CHECK(row(s, "fc1").output_shape == std::vector<int64_t>{1, 6});
  CHECK(row(s, "fc2").flops == 2 * 6 * 5);
  CHECK(s.layers.back().name == "unused");
  CHECK(s.layers.back().output_shape.empty());
  CHECK(s.flops == 2 * (8 * 64 * 27 + 8 * 64 * 18 + 8 * 64 * 16 + 24 + 30));
  CHECK(s.parameters == parameters_of(*net).numel());
  CHECK(s.trainable_parameters == s.parameters);
  CHECK(s.buffers == 17);
  CHECK(s.blocks.empty());
  CHECK(s.str().find("BatchNorm2d") != std::string::npos);
}

TEST_CASE("modes and statistics are as before") {
  const auto net = std::make_shared<SmallImageNet>();
  net->train();
  net->bn->eval();
  const at::Tensor mean = net->bn->running_mean.clone();
  summarize(image_model(net));
  CHECK(net->is_training());
  CHECK(net->drop->is_training());
  CHECK_FALSE(net->bn->is_training());
  CHECK(at::equal(net->bn->running_mean, mean));
  for (const auto& p : net->parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("modes come back after an error too, which arrives as ours") {
  const auto net = std::make_shared<SmallImageNet>();
  Model model = image_model(net);
  model.inputs = {image_input(4, 16)};
  const auto e = testing::error_of([&] { summarize(model); });
  CHECK(testing::has(e.what(), "[summarize]"));
  CHECK(testing::has(e.what(), "to have 3 channels"));
  CHECK(net->drop->is_training());
  CHECK(testing::error_of([] { summarize(Model{}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("another image size, frozen parameters, other dtypes") {
  const auto net = std::make_shared<SmallImageNet>();
  net->fc1->weight.requires_grad_(false);
  net->to(at::kDouble);
  const auto s = summarize(image_model(net), {{"height", 32}, {"width", 32}});
  CHECK(s.layers[0].output_shape == std::vector<int64_t>{1, 8, 16, 16});
  CHECK(s.layers[0].flops == 2 * 8 * 256 * 27);
  CHECK(s.trainable_parameters == s.parameters - 24);
}
