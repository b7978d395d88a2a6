#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("deterministic: an operator that cannot repeat is refused by its name, or warned of, or let be; fresh memory is not filled") {
  struct Net : torch::nn::Module {
    Net() : layer(register_module("layer", torch::nn::Linear(3 * 32 * 32, 4))) {}
    at::Tensor forward(const at::Tensor& x) {
      fills = at::globalContext().deterministicFillUninitializedMemory();
      const at::Tensor y = layer(x.flatten(1));
      return y.put(at::zeros({1}, at::kLong), y.detach().flatten().slice(0, 0, 1));
    }
    torch::nn::Linear layer;
    bool fills = false;
  };
  for (const char* value : {"true", "warn", "false"}) {
    CAPTURE(value);
    const auto net = std::make_shared<Net>();
    RunConfig config{.deterministic = value, .device = "cpu", .trainer = {.max_epochs = 1}, .output = {.dir = ""}};
    config.data.options = {{"batch_size", 4}};
    Trainer trainer(config);
    const auto data = std::make_shared<TensorDataset>(at::rand({8, 3, 32, 32}), at::arange(8) % 4);
    const auto run = [&] { trainer.fit(classifier(net), data); };
    if (std::string(value) == "true")
      CHECK(has(error_of(run).what(), "put_"));
    else
      run();
    CHECK(net->fills == (std::string(value) == "false"));
  }
}
