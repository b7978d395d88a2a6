#include "testing.hpp"

#include "engine/small_trainer.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("gradient_checkpointing changes only memory") {
  const auto trained = [](const std::string& plan, const std::string& model, const std::string& precision) {
    TempDir dir;
    auto config = resnet_run(dir.path());
    config.precision = precision;
    config.model = {.name = model, .options = {}};
    if (model == "vit_tiny")
      config.model.options = {{"depth", 3}, {"image_size", 32}, {"patch_size", 8}, {"dropout", 0.1}, {"drop_path", 0.2}};
    config.data.options.set("train_size", ConfigNode(int64_t{48}));
    config.trainer.max_epochs = 1;
    config.trainer.gradient_checkpointing = plan;
    Trainer trainer(config);
    trainer.fit();
    return digest(trainer.state().at("model"));
  };
  for (const std::string model : {"resnet18", "vit_tiny"}) {
    for (const std::string precision : {"32-true", "16-mixed"}) {
      CAPTURE(model);
      CAPTURE(precision);
      const auto plain = trained("none", model, precision);
      for (const char* plan : {"blocks", "every:2", "budget:1MiB"}) {
        CAPTURE(plan);
        CHECK(trained(plan, model, precision) == plain);
      }
    }
  }
}

TEST_CASE("gradient_checkpointing: errors") {
  auto config = resnet_run("");
  config.trainer.gradient_checkpointing = "some";
  CHECK(has(error_of([&] { Trainer(config).fit(); }).what(), "every:N"));
  config.trainer.gradient_checkpointing = "blocks";
  config.data = {};
  Trainer own(config);
  CHECK(has(error_of([&] { own.fit(classifier(Tiny()), small_images(16), nullptr); }).what(), "npu_train::checkpoint"));
}
