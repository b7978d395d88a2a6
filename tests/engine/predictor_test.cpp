#include "testing.hpp"

#include "npu_train/engine/predictor.hpp"

#include <torch/nn.h>

#include "data/images.hpp"
#include "engine/short_run.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/nn/named_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a checkpoint answers as the trainer did, without its data") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  config.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 32}, {"batch_size", 16}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1};
  config.ema = {.enabled = true, .decay = 0.5};
  config.output.dir = dir.path().string();
  Trainer trainer(config);
  const auto result = trainer.fit();
  const auto x = torch::randn({3, 3, 32, 32});
  const auto expected = trainer.predict(x);

  const auto predictor = Predictor::from_checkpoint(result.run_dir, "cpu");
  CHECK(torch::allclose(predictor(x), expected, 1e-4, 1e-5));
  CHECK(predictor.classes().size() == 10);
  const auto answers = predictor.top_answers(expected[0], 3);
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].label == expected[0].argmax().item<int64_t>());
  CHECK(answers[0].name == predictor.classes()[static_cast<size_t>(answers[0].label)]);
  CHECK(answers[0].probability >= answers[1].probability);
  // Any image becomes a square of the model's size.
  write_bytes((dir / "wide.png").string(), to_png(rough(40, 90)));
  CHECK((predictor.read_image((dir / "wide.png").string()).sizes() == at::IntArrayRef({3, 32, 32})));
  CHECK(error_of([&] { predictor.classify((dir / "none.png").string()); }).kind() == ErrorKind::Data);
}

TEST_CASE("a checkpoint of a training with a profiler and a dump answers in a program without them") {
  TempDir dir;
  auto parts = builtin_parts();
  parts.observers.add("profiler", "in place of the profiler", [] { return std::make_unique<RunObserver>(); });
  parts.observers.add_section<NoOptions>("dump", "in place of the dump", [](const NoOptions&) { return std::make_unique<RunObserver>(); });
  auto config = short_run();
  config.trainer.max_steps = 1;
  config.trainer.profiler = "simple";
  config.sections["dump"] = ConfigNode::map();
  config.output.dir = dir.path().string();
  const auto result = Trainer(config, parts).fit();
  CHECK(Predictor::from_checkpoint(result.run_dir, "cpu")(torch::zeros({1, 3, 32, 32})).sizes() == at::IntArrayRef({1, 10}));
}

TEST_CASE("weights that do not fill the model are refused") {
  TempDir dir;
  const auto model = resnet(18, {.num_classes = 5});
  save_safetensors(dir / "w.safetensors", named_state(*model.module));
  const auto file = (dir / "w.safetensors").string();
  CHECK(Predictor::from_weights("resnet18", 5, file, "cpu")(torch::zeros({1, 3, 64, 64})).sizes() == at::IntArrayRef({1, 5}));
  CHECK(error_of([&] { Predictor::from_weights("resnet18", 6, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { Predictor::from_weights("resnet34", 5, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { Predictor::from_checkpoint(dir.path().string(), "cpu"); }).kind() == ErrorKind::Checkpoint);
}
