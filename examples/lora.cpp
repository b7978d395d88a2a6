// Low-rank adapters in your own network: learns y = sin(3 x), then adapts to y = sin(3 x + 0.5) by training only the adapters.
#include <torch/nn.h>
#include <torch/types.h>

#include <cstdio>

#include <npu_train/models/lora.hpp>
#include <npu_train/nn/init.hpp>
#include <npu_train/nn/layers.hpp>
#include <npu_train/trainer.hpp>

// Uses npu_train's linear layers, which support adapters.
struct CurveImpl : torch::nn::Module {
  CurveImpl() {
    for (const auto& [name, in, out] : {std::tuple("first", 1, 64), std::tuple("second", 64, 64), std::tuple("last", 64, 1)}) {
      layers.push_back(register_module(name, std::make_shared<npu_train::Linear>(in, out)));
      npu_train::init::kaiming_uniform_fan_in_(layers.back()->weight);
      npu_train::init::uniform_(layers.back()->bias, 0.5);
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i + 1 < layers.size(); ++i) x = torch::tanh(layers[i]->forward(x));
    return layers.back()->forward(x);
  }
  std::vector<std::shared_ptr<npu_train::Linear>> layers;
};
TORCH_MODULE(Curve);

double learn(const npu_train::Model& model, double shift) {
  const auto x = torch::rand({2048, 1}) * 2 - 1, x_val = torch::linspace(-1, 1, 101).unsqueeze(1);
  const auto train = std::make_shared<npu_train::TensorDataset>(x, torch::sin(3 * x + shift));
  const auto val = std::make_shared<npu_train::TensorDataset>(x_val, torch::sin(3 * x_val + shift));
  npu_train::Trainer trainer({.data = {.options = {{"batch_size", 64}}},
                              .optimizer = {"adamw", {{"lr", 1e-2}}},
                              .lr_scheduler = {"cosine"},
                              .trainer = {.max_epochs = 10, .threads = 1},
                              .output = {.dir = ""}});
  return npu_train::scalar_or(trainer.fit(npu_train::regressor(model), train, val).final_val, "mae", -1);
}

int main() try {
  npu_train::seed_everything(1);
  auto model = npu_train::as_model(Curve());
  std::printf("mean absolute error %.4f\n", learn(model, 0));

  const auto report = npu_train::apply_lora(model, {.rank = 4, .alpha = 8, .targets = {"second", "last"}});
  std::printf("%s\n", report.str().c_str());
  std::printf("mean absolute error of the other curve %.4f\n", learn(model, 0.5));
  npu_train::merge_lora(model);  // an ordinary network again, with one weight for each layer
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
