#include "testing.hpp"

#include "npu_train/tools/runs/proof_runs.hpp"

#include "engine/short_run.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a run for a proof leaves no files, validates nothing and ends where it should") {
  auto config = short_run();
  config.output.dir = "outputs";
  config.sections["dump"] = ConfigNode::map();
  config.trainer.profiler = "chrome";
  config.trainer.max_time = 1;
  config.early_stopping.enabled = true;
  config.model.options.set("weights", ConfigNode("w.safetensors"));
  const auto quiet = npu_train::detail::without_side_effects(config);
  CHECK(quiet.output.dir.empty());
  CHECK(quiet.sections.empty());
  CHECK(quiet.trainer.profiler == "none");
  CHECK(quiet.trainer.max_time < 0);
  CHECK_FALSE(quiet.early_stopping.enabled);
  CHECK(quiet.model.options.find("weights") != nullptr);
  CHECK(npu_train::detail::without_files(config).model.options.find("weights") == nullptr);
}

TEST_CASE("a run for a proof has the averages of its configuration, without their end of the run") {
  for (const char* kind : {"ema", "swa", "checkpoints"}) {
    CAPTURE(kind);
    auto config = short_run();
    config.average = {.enabled = true, .kind = kind};
    if (config.average.kind == "swa") {
      config.average.start = 0.5;
      config.average.lr = 1;
    }
    if (config.average.kind == "checkpoints") config.average.last = 2;
    config = npu_train::detail::without_side_effects(config);
    config.trainer.max_epochs = -1;  // as for a measurement of steps
    config.checkpoint.enabled = false;
    Trainer trainer(config);
    trainer.setup();
    CHECK(trainer.loop().parts().average != nullptr);
    CHECK(trainer.loop().parts().schedule->factor(1e6) < 1.0001);
  }
}

TEST_CASE("a run that is too short is refused with both numbers, and states name their parts") {
  const auto config = short_run();
  auto trainer = npu_train::detail::trained_until(config, builtin_parts(), 3, "proof");
  const auto before = npu_train::detail::snapshot(trainer);
  CHECK(trainer.loop().global_step() == 3);
  CHECK(npu_train::detail::differing_parts(before, npu_train::detail::snapshot(trainer)).empty());
  trainer.loop().set_max_steps(4);
  trainer.fit();
  const auto differing = npu_train::detail::differing_parts(before, npu_train::detail::snapshot(trainer));
  CHECK(std::find(differing.begin(), differing.end(), "model") != differing.end());
  const std::string text = error_of([&] { npu_train::detail::trained_until(config, builtin_parts(), 13, "proof"); }).what();
  CHECK_MESSAGE(has(text, "the run ends after 12 steps, but 13 are needed"), text);
}
