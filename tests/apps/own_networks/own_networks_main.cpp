// train_app with a user's network, for peer_dumps_test.py; python_dumps.py has the same network in PyTorch.
#include <torch/nn.h>

#include <string>

#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/tools/commands/main.hpp"
#include "npu_train/train/classifier.hpp"

namespace {

using torch::nn::BatchNorm2d, torch::nn::Conv2d, torch::nn::Conv2dOptions, torch::nn::Linear;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t channels)
      : conv1(register_module("conv1", Conv2d(Conv2dOptions(channels, channels, 3).padding(1).bias(false)))),
        bn1(register_module("bn1", BatchNorm2d(channels))),
        conv2(register_module("conv2", Conv2d(Conv2dOptions(channels, channels, 3).padding(1).bias(false)))),
        bn2(register_module("bn2", BatchNorm2d(channels))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(x + bn2(conv2(torch::relu(bn1(conv1(x)))))); }
  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
};
TORCH_MODULE(Block);

struct ResidualImpl : torch::nn::Module {
  ResidualImpl()
      : stem(register_module("stem", Conv2d(Conv2dOptions(3, 32, 3).padding(1)))),
        blocks(register_module("blocks", torch::nn::Sequential(Block(32), Block(32)))),
        fc(register_module("fc", Linear(32, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto first = npu_train::named_value("first", torch::relu(stem(x)));
    return fc(npu_train::named_value("pooled", blocks->forward(first).mean({2, 3})));
  }
  Conv2d stem;
  torch::nn::Sequential blocks;
  Linear fc;
};
TORCH_MODULE(Residual);

struct ResidualOptions {
  std::string weights{};
  static const npu_train::ConfigTable<ResidualOptions>& config_table() {
    static const auto table =
        npu_train::ConfigTable<ResidualOptions>("residual").field("weights", &ResidualOptions::weights, "file with initial weights");
    return table;
  }
};

}  // namespace

int main(int argc, char** argv) {
  auto parts = npu_train::tool_parts();
  parts.models.add<ResidualOptions>("residual", "a residual network of a user", [](const ResidualOptions& options) {
    auto model = npu_train::as_model(Residual());
    model.num_classes = 2;
    model.weights = options.weights;
    return model;
  });
  return npu_train::train_main(argc, argv, parts);
}
