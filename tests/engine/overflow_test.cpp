// The forward of a real network overflows fp16: the step must be skipped, and change only the scale.
#include "testing.hpp"

#include <cmath>

#include <torch/nn.h>

#include "npu_train/engine/trainer.hpp"
#include "trainer_bits.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

RunConfig resnet18_in_fp16() {
  RunConfig config{.device = "cpu", .precision = "16-mixed"};
  config.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  config.data = {.name = "generated", .options = {{"train_size", 16}, {"val_size", 16}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.optimizer = {.name = "sgd", .options = {{"lr", 0.05}, {"momentum", 0.9}}};
  config.trainer.threads = 1;
  config.grad_scaler.init_scale = 1024;  // low, so that the clean steps do not overflow
  config.average.enabled = true;
  config.output.dir = "";
  return config;
}

}  // namespace

TEST_CASE("ResNet-18: an overflow in the forward skips the step, and evaluation stays finite") {
  for (const bool first : {true, false}) {
    CAPTURE(first);
    Trainer trainer(resnet18_in_fp16());
    trainer.setup();
    torch::manual_seed(4);
    const Batch batch(torch::randn({8, 3, 32, 32}), torch::randint(10, {8}));
    auto huge = batch;
    huge.set("input", batch.input() * 1e6);
    if (!first) REQUIRE(trainer.train_step(batch).taken);
    const auto before = bits_of(trainer);
    for (const char* key : {"model/bn1.running_mean", "model/layer4.1.bn2.running_var", "model/bn1.num_batches_tracked", "model/fc.weight",
                            "optimizer/momentum/fc.weight", "ema/average/fc.weight", "ema/buffer/bn1.running_mean"}) {
      CAPTURE(key);
      CHECK(before.count(key) == 1);
    }

    const auto skipped = trainer.train_step(huge);
    CHECK_FALSE(skipped.taken);
    CHECK_FALSE(std::isfinite(scalar_or(skipped.metrics, "loss", 0)));  // shows that the forward overflowed
    CHECK(skipped.loss_scale == 512);
    CHECK((bits_of(trainer) == before));
    for (const auto& p : trainer.task().parameters()) CHECK_FALSE(p.value.grad().defined());

    for (const auto& [name, value] : trainer.validate()) {
      CAPTURE(name);
      CHECK(std::isfinite(value));
    }
    CHECK(torch::isfinite(trainer.predict(batch.input())).all().item<bool>());
    const auto next = trainer.train_step(batch);
    CHECK(next.taken);
    CHECK(next.global_step == (first ? 1 : 2));
    CHECK(std::isfinite(scalar_or(next.metrics, "loss", kNaN)));
  }
}
