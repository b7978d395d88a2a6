#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/base/state.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

RunConfig small(const fs::path& dir, const std::string& device, const std::string& model, const std::string& precision = "32-true") {
  RunConfig c{.device = device, .precision = precision};
  c.model = {.name = model, .options = {}};
  if (model == "resnet18") c.model.options = {{"stem", "imagenet"}, {"fused_kernels", "false"}};
  if (model == "vit_tiny") c.model.options = {{"depth", 2}, {"image_size", 32}, {"patch_size", 8}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 32}, {"batch_size", 16}, {"num_workers", "0"}}};
  c.optimizer.options = {{"lr", 0.05}};
  c.trainer = {.max_epochs = 2, .threads = 1};
  c.output.dir = dir.string();
  return c;
}

struct Ended {
  uint64_t weights;
  double loss;
};

Ended train(const RunConfig& config) {
  Trainer trainer(config);
  const auto result = trainer.fit();
  CHECK((result.reason == StopReason::MaxEpochs));
  return {digest(load_checkpoint(result.last_checkpoint, {"model"}).at("model")), scalar_or(result.history.back().train, "loss", -1)};
}

}  // namespace

TEST_CASE("in 32-true a run on the simulated NPU gives the bits of a run on the CPU") {
  for (const std::string model : {"resnet18", "vit_tiny"}) {
    CAPTURE(model);
    TempDir dir;
    const auto before = [] { return backend_of({"sim_npu", 0}).is_available() ? sim_npu_counters().ops : 0; };
    const auto ops = before();
    const auto npu = train(small(dir / "npu", "sim_npu", model));
    CHECK(sim_npu_counters().ops > ops + 1000);
    const auto cpu = train(small(dir / "cpu", "cpu", model));
    CHECK(npu.weights == cpu.weights);
    CHECK(npu.loss == cpu.loss);
  }
}

TEST_CASE("optimizers keep to kernels that the chip has, and train as on the CPU") {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    CAPTURE(name);
    const auto weights = [&](const std::string& device) {
      TempDir dir;
      auto config = small(dir.path(), device, "vit_tiny");
      config.optimizer = {.name = name, .options = {{"lr", 0.01}, {"weight_decay", 0.1}}};
      config.trainer.max_epochs = 1;
      Trainer trainer(config);
      trainer.fit();
      std::vector<at::Tensor> out;
      for (const auto& p : trainer.task().parameters()) out.push_back(p.value.detach().cpu());
      return out;
    };
    const auto before = weights("cpu");
    resolve_device("cpu");
    const auto fallbacks = backend_of({"sim_npu", 0}).is_available() ? sim_npu_counters().cpu_fallbacks : 0;
    const auto after = weights("sim_npu");
    CHECK(sim_npu_counters().cpu_fallbacks == fallbacks);
    for (size_t i = 0; i < before.size(); ++i) CHECK(at::allclose(before[i], after[i], 1e-4, 1e-5));
  }
}

TEST_CASE("rng: portable gives the CPU and the device the same weights and the same masks") {
  const auto first_loss = [&](const std::string& device, const std::string& rng) {
    TempDir dir;
    auto config = small(dir.path(), device, "vit_tiny");
    config.model.options.set("dropout", ConfigNode(0.5));
    config.rng = rng;
    Trainer trainer(config);
    trainer.setup();
    return scalar_or(trainer.train_step(Batch(at::ones({8, 3, 32, 32}), at::arange(8) % 4)).metrics, "loss", -1);
  };
  CHECK(first_loss("sim_npu", "portable") == first_loss("cpu", "portable"));
  CHECK(first_loss("cpu", "portable") != first_loss("cpu", "native"));  // shows that there are dropout masks
}
