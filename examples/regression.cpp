// Regression on tensors in memory with a custom loss: learns y = sin(3 x) and prints the error.
#include <torch/nn.h>
#include <torch/types.h>

#include <cstdio>

#include <npu_train/trainer.hpp>

struct CurveImpl : torch::nn::Module {
  CurveImpl() {
    using namespace torch::nn;
    layers = register_module("layers", Sequential(Linear(1, 64), Tanh(), Linear(64, 64), Tanh(), Linear(64, 1)));
  }
  torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Curve);

int main() try {
  npu_train::seed_everything(1);
  const auto x = torch::rand({2048, 1}) * 2 - 1, x_val = torch::linspace(-1, 1, 101).unsqueeze(1);
  const auto train = std::make_shared<npu_train::TensorDataset>(x, torch::sin(3 * x));
  const auto val = std::make_shared<npu_train::TensorDataset>(x_val, torch::sin(3 * x_val));
  npu_train::Trainer trainer({.data = {.options = {{"batch_size", 64}}},
                              .optimizer = {"adamw", {{"lr", 3e-3}}},
                              .lr_scheduler = {"cosine"},
                              .trainer = {.max_epochs = 20},
                              .output = {.dir = ""}});
  const auto huber = [](const npu_train::Outputs& out, const npu_train::Batch& batch) {
    return torch::huber_loss(out.first(), batch.target());
  };
  const auto result = trainer.fit(npu_train::task(Curve(), huber, {npu_train::mean_absolute_error()}), train, val);
  std::printf("mean absolute error %.4f after %lld steps\n", npu_train::scalar_or(result.final_val, "mae", -1),
              static_cast<long long>(result.global_step));
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
