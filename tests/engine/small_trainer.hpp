// A network and a configuration that train in a few seconds, for tests of the trainer.
#pragma once

#include <torch/nn.h>

#include <filesystem>
#include <memory>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/trainer.hpp"

namespace npu_train::testing {

struct TinyImpl : torch::nn::Module {
  TinyImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).stride(2)));
    head = register_module("head", torch::nn::Linear(8, 10));
  }
  at::Tensor forward(at::Tensor x) { return head(torch::relu(conv(x)).mean({2, 3})); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Tiny);

inline std::shared_ptr<Dataset> small_images(int64_t n) {
  torch::manual_seed(1);
  return std::make_shared<TensorDataset>(torch::randn({n, 3, 8, 8}), torch::randint(10, {n}), 10);
}

/// Returns a run of ResNet-18 on a few generated images.
inline RunConfig resnet_run(const std::filesystem::path& dir) {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 32}, {"batch_size", 16}, {"num_workers", "0"}}};
  c.optimizer.options = {{"lr", 0.05}};
  c.trainer = {.max_epochs = 2, .threads = 1};
  c.output.dir = dir.string();
  return c;
}

}  // namespace npu_train::testing
