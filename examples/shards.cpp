// Your own network with sharded parameters, which are gathered block by block. The second argument is a folder for checkpoints.
//   scripts/launch --nproc 2 build/bin/example_shards zero3 outputs
#include <torch/nn.h>
#include <torch/types.h>

#include <cstdio>

#include <npu_train/base/has_memory.hpp>
#include <npu_train/core/launch.hpp>
#include <npu_train/trainer.hpp>

struct WideCurveImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return out->forward(second(first(x))); }
  std::vector<npu_train::Unit> units() const { return {first, second}; }

  torch::nn::Linear layer1 = register_module("layer1", torch::nn::Linear(1, 64));
  torch::nn::Linear layer2 = register_module("layer2", torch::nn::Linear(64, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 1));
  npu_train::Unit first{"layer1", layer1.ptr(), [this](const torch::Tensor& x) { return layer1->forward(x).tanh(); }};
  npu_train::Unit second{"layer2", layer2.ptr(), [this](const torch::Tensor& x) { return layer2->forward(x).tanh(); }};
};
TORCH_MODULE(WideCurve);

int main(int argc, char** argv) try {
  npu_train::set_log_sink(npu_train::make_standard_sink());
  npu_train::seed_everything(1);
  const auto x = torch::rand({1024, 1}) * 2 - 1, x_val = torch::linspace(-1, 1, 101).unsqueeze(1);
  const auto train = std::make_shared<npu_train::TensorDataset>(x, torch::sin(3 * x));
  const auto val = std::make_shared<npu_train::TensorDataset>(x_val, torch::sin(3 * x_val));
  const bool alone = npu_train::launch_of_environment().world_size == 1;
  npu_train::Trainer trainer({.data = {.options = {{"batch_size", 32}}},
                              .optimizer = {"adamw", {{"lr", 3e-3}}},
                              .trainer = {.max_epochs = 10,
                                          .accumulate_grad_batches = alone ? 2 : 1,  // keeps the global batch of two ranks
                                          .strategy = argc > 1 ? argv[1] : "auto",
                                          .threads = 1},
                              .output = {.dir = argc > 2 ? argv[2] : ""}});
  const auto huber = [](const npu_train::Outputs& outputs, const npu_train::Batch& batch) {
    return torch::huber_loss(outputs.first(), batch.target());
  };
  const WideCurve net;
  const auto result = trainer.fit(npu_train::task(net, huber, {npu_train::mean_absolute_error()}), train, val);
  const auto bytes_of = [](const torch::nn::Linear& layer) {
    return npu_train::has_memory(layer->weight) ? static_cast<long long>(layer->weight.nbytes()) : 0LL;
  };
  std::printf("mean absolute error %.4f; between steps this rank has %lld bytes of layer2, and %lld of out\n",
              npu_train::scalar_or(result.final_val, "mae", -1), bytes_of(net->layer2), bytes_of(net->out));
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
