#include "testing.hpp"

#include "npu_train/engine/parts.hpp"

#include <algorithm>

#include <torch/nn.h>

#include "data/images.hpp"
#include "engine/short_run.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

struct NetOptions {
  int64_t width = 8;
  int64_t num_classes = 0;
  static const ConfigTable<NetOptions>& config_table() {
    static const auto table = ConfigTable<NetOptions>("my net")
                                  .field("width", &NetOptions::width, "width", at_least(1))
                                  .field("num_classes", &NetOptions::num_classes, "classes", at_least(0));
    return table;
  }
};

struct MarkOptions {
  std::string mark = "none";
  static const ConfigTable<MarkOptions>& config_table() {
    static const auto table = ConfigTable<MarkOptions>("mark").field("mark", &MarkOptions::mark, "a letter");
    return table;
  }
};

/// Writes its letter at each step, and counts the steps across checkpoints.
struct Marker final : Callback {
  Marker(std::string letter, std::string& log) : mark(std::move(letter)), written(log) {}
  std::string name() const override { return "marker_" + mark; }
  State state() const override { return {{}, {{"steps", steps}}}; }
  void load_state(const State& state) override { steps = state.integer("steps", name()); }
  void on_step_end(TrainLoop&, const StepReport&) override {
    ++steps;
    written += mark;
  }
  std::string mark;
  std::string& written;
  int64_t steps = 0;
};

/// Sets every pixel to `value`.
struct Flood final : Transform {
  explicit Flood(uint8_t v) : value(v) {}
  Image apply(Image image, Philox&) const override {
    image = std::move(image).own();
    for (int64_t c = 0; c < image.channels(); ++c) std::fill_n(image.mutable_plane(c), image.pixels(), value);
    return image;
  }
  uint8_t value;
};

struct FloodOptions {
  int64_t value = 0;
  static const ConfigTable<FloodOptions>& config_table() {
    static const auto table = ConfigTable<FloodOptions>("flood").field("value", &FloodOptions::value, "of each pixel", between(0, 255));
    return table;
  }
};

Parts parts_with_flood() {
  auto parts = builtin_parts();
  parts.transforms.add<FloodOptions>("flood", "images of one colour", [](const FloodOptions& o) {
    return TransformPart{std::make_shared<Flood>(static_cast<uint8_t>(o.value)), {}};
  });
  return parts;
}

}  // namespace

TEST_CASE("the library's parts are there by name") {
  const auto parts = builtin_parts();
  for (const char* name : {"resnet18",  "resnet34",   "resnet50",     "resnet101",        "resnet152", "vit_tiny",     "vit_small",
                           "vit_b16",   "vit_b32",    "vit_l16",      "vit_tiny_cifar10", "gpt2",      "gpt2_124m",    "gpt2_tiny",
                           "llama",     "llama_tiny", "glm",          "glm_6b",           "glm_tiny",  "bert",         "bert_base",
                           "bert_tiny", "clip",       "clip_vit_b32", "clip_tiny",        "internvl",  "internvl_tiny"})
    CHECK(parts.models.contains(name));
  for (const char* name : {"cifar10", "cifar100", "image_folder", "generated", "tokens", "documents", "image_text", "image_questions",
                           "generated_text", "generated_questions"})
    CHECK(parts.datasets.contains(name));
  for (const char* name : {"sgd", "adam", "adamw", "lamb"}) CHECK(parts.optimizers.contains(name));
  for (const char* name : {"constant", "step", "multistep", "cosine", "linear", "polynomial", "one_cycle"})
    CHECK(parts.schedules.contains(name));
  CHECK(parts.tasks.contains("classifier"));
  CHECK(parts.tasks.contains("language_model"));
  CHECK(parts.tasks.contains("masked_language_model"));
  CHECK(parts.tasks.contains("contrastive"));
}

TEST_CASE("a part of one's own has a name and keys like any other") {
  auto parts = builtin_parts();
  parts.models.add<NetOptions>("my_net", "mine", [](const NetOptions& o) {
    return npu_train::as_model(
        torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(12, o.width), torch::nn::Linear(o.width, o.num_classes)));
  });
  const auto config = bind_config(parse_yaml("model: {name: my_net, width: 5}", "t"), parts);
  DatasetInfo info;
  info.num_classes = 3;
  info.shape = {3, 2, 2};
  const auto part = with_data_defaults(config.model, info, 0, parts);
  const auto model = parts.models.make(part, "model");
  CHECK(model.forward(torch::zeros({2, 3, 2, 2})).sizes() == at::IntArrayRef({2, 3}));
  const auto e = error_of([&] { bind_config(parse_yaml("model: {name: my_net, widht: 5}", "t"), parts); });
  CHECK(std::string(e.what()).find("width") != std::string::npos);
}

TEST_CASE("callbacks of the configuration run in its order, with their options, and keep their state in checkpoints") {
  TempDir dir;
  std::string written;
  auto parts = builtin_parts();
  parts.callbacks.add<MarkOptions>("marker", "writes a letter",
                                   [&](const MarkOptions& o) { return std::make_shared<Marker>(o.mark, written); });
  const auto with = [&](const std::string& list, int64_t steps) {
    auto config = testing::short_run();
    config.callbacks = bind_config(parse_yaml("callbacks: " + list, "t"), parts).callbacks;
    config.trainer.max_steps = steps;
    config.output = {.dir = dir.path().string(), .name = "run"};
    Trainer trainer(config, parts);
    trainer.resume("auto");
    return trainer.fit();
  };
  with("[{name: marker, mark: b}, {name: marker, mark: a}]", 3);
  CHECK(written == "bababa");
  const auto last = with("[{name: marker, mark: a}, {name: marker, mark: b}]", 5).last_checkpoint;
  CHECK(written ==
        "bababa"
        "abab");
  CHECK(load_checkpoint(last).at("callbacks.marker_a").integer("steps", "marker_a") == 5);
  // A program without the callback can predict from such a checkpoint.
  CHECK(Predictor::from_checkpoint(last, "cpu")(torch::zeros({1, 3, 32, 32})).size(1) == 10);

  const auto unknown = error_of([&] { bind_config(parse_yaml("callbacks: [marcer]", "t"), parts); });
  CHECK(has(unknown.what(), "marker"));
  CHECK(has(unknown.what(), "callbacks.0"));
  const auto none = error_of([] { bind_config(parse_yaml("callbacks: [marker]", "t")); });
  CHECK(has(none.what(), "parts.callbacks.add"));
  CHECK(error_of([&] { bind_config(parse_yaml("callbacks: [{name: marker, marc: x}]", "t"), parts); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a transform of one's own prepares the images of a training and of its predictions") {
  TempDir dir;
  const auto parts = parts_with_flood();
  auto config = testing::short_run();
  config.data.options.set("train_transforms", parse_yaml("[{name: flood, value: 255}, normalize]", "t"));
  config.data.options.set("val_transforms",
                          parse_yaml("[{name: flood, value: 51}, {name: normalize, mean: [0, 0, 0], std: [1, 1, 1]}]", "t"));
  config.trainer.max_steps = 1;
  config.output.dir = dir.path().string();
  const auto result = Trainer(config, parts).fit();

  testing::write_bytes((dir / "x.png").string(), testing::to_png(testing::rough(32, 32)));
  const auto image = Predictor::from_checkpoint(result.run_dir, "cpu", parts).read_image((dir / "x.png").string());
  CHECK(torch::allclose(image, torch::full_like(image, 0.2), 0, 1e-6));
  CHECK(has(error_of([&] { Predictor::from_checkpoint(result.run_dir, "cpu"); }).what(), "parts.transforms.add"));
  config.output.dir = "";
  CHECK(has(error_of([&] { Trainer(config).fit(); }).what(), "flood"));
  CHECK(error_of([&] {
          auto wrong = config;
          wrong.data.options.set("val_transforms", parse_yaml("[{name: flood, value: 300}]", "t"));
          check_config(wrong, parts);
        }).kind() == ErrorKind::Usage);
}

TEST_CASE("metrics by name take the place of the task's, a program's own among them") {
  auto parts = builtin_parts();
  parts.metrics.add<NoOptions>("two", "2 for each sample", [](const NoOptions&) {
    return Metric{"two", [](const StepOutput&, const Batch& batch) { return torch::full({}, 2.0 * static_cast<double>(batch.size)); }};
  });
  auto config = testing::short_run();
  config.trainer.max_steps = 2;
  config.task = bind_config(parse_yaml("task: {name: classifier, metrics: [two, {name: accuracy, k: 10}]}", "t"), parts).task;
  Trainer trainer(config, parts);
  trainer.fit();
  const auto values = trainer.validate();
  CHECK(scalar_or(values, "two", -1) == 2);
  CHECK(scalar_or(values, "acc10", -1) == 100);  // there are ten classes
  CHECK(scalar_or(values, "acc1", -1) == -1);

  CHECK(has(error_of([&] { bind_config(parse_yaml("task: {name: classifier, metrics: [{name: accuracy, k: 0}]}", "t"), parts); }).what(),
            "k"));
  CHECK(has(error_of([] { bind_config(parse_yaml("task: {name: classifier, metrics: [two]}", "t")); }).what(), "parts.metrics.add"));
}

TEST_CASE("lists that are empty are not written into a configuration") {
  const auto text = to_yaml(resolved(testing::short_run()));
  CHECK(!has(text, "callbacks"));
  CHECK(!has(text, "metrics:"));
}
