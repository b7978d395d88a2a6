// The second way: a model and data of your own.
#include <torch/nn.h>
#include <npu_train/trainer.hpp>

#include <cstdio>

struct MyNetImpl : torch::nn::Module {
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(2, 64))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(64, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }
};
TORCH_MODULE(MyNet);

// Points of a square; the class of a point says whether it is inside a circle.
std::shared_ptr<npu_train::Dataset> points(int64_t count) {
  const auto x = torch::rand({count, 2}) * 2 - 1;
  return std::make_shared<npu_train::TensorDataset>(x, (x.square().sum(1) < 0.6).to(torch::kLong));
}

int main() {
  npu_train::seed_everything(1);
  const auto train_data = points(4096), val_data = points(1024);

  npu_train::Trainer trainer({.device = "auto", .precision = "bf16-mixed", .trainer = {.max_epochs = 5}});
  npu_train::RunResult result = trainer.fit(npu_train::classifier(MyNet()), train_data, val_data);

  const double accuracy = npu_train::scalar_or(result.final_val, "acc1", 0);
  std::printf("accuracy %.1f %%\n", accuracy);
  return result.history.size() == 5 && accuracy > 70 ? 0 : 1;
}
