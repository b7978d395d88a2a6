#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/base/digest.hpp"
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
