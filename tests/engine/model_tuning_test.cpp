#include "testing.hpp"

#include "npu_train/engine/model_tuning.hpp"

#include <torch/nn.h>

#include <algorithm>
#include <map>

#include "engine/short_run.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/models/lora.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/model_task.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

struct OwnKeys {
  std::string lora = "none";
  static const ConfigTable<OwnKeys>& config_table() {
    static const auto table = ConfigTable<OwnKeys>("own").field("lora", &OwnKeys::lora, "something else");
    return table;
  }
};

RunConfig tuned_run(const TempDir& dir, const std::string& keys) {
  auto config = testing::short_run();
  config.model.options.set("qkv", "split");
  const auto tuning = parse_yaml(keys, "t");
  for (const auto& member : tuning.members()) config.model.options.put(member);
  config.optimizer = {.name = "adamw", .options = {{"lr", 0.01}}};
  config.trainer.max_steps = 4;
  config.output.dir = dir.path().string();
  return config;
}

constexpr const char* kLoraKeys = "lora: {rank: 2, alpha: 6, targets: ['*attention.*'], also_train: [heads]}";

std::map<std::string, at::Tensor> copies(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> out;
  for (const auto& p : parameters_of(module)) out.emplace(p.name, p.value.detach().clone());
  return out;
}

bool has_field(const std::vector<FieldInfo>& fields, const std::string& name) {
  return std::any_of(fields.begin(), fields.end(), [&](const FieldInfo& f) { return f.name == name; });
}

}  // namespace

TEST_CASE("every model has the keys, and one that has such a key keeps its own") {
  auto parts = builtin_parts();
  for (const auto& name : parts.models.names())
    for (const char* key : {"freeze", "lora"}) CHECK_MESSAGE(has_field(parts.models.describe(name), key), name);
  std::string seen;
  parts.models.add<OwnKeys>("own", "a network", [&](const OwnKeys& o) {
    seen = o.lora;
    return as_model(torch::nn::Sequential(torch::nn::Linear(2, 2)));
  });
  auto model = parts.models.make(part("own", {{"lora", "mine"}, {"freeze", ConfigNode::list({"0.weight"})}}), "model");
  CHECK(seen == "mine");
  CHECK_FALSE(parts.models.tuning(part("own", {{"lora", "mine"}}), "model").lora);
  tune(model, part("own", {{"freeze", ConfigNode::list({"0.weight"})}}), parts, 1);
  CHECK_FALSE(parameters_of(*model.module)[0].value.requires_grad());
}

TEST_CASE("the keys are checked with the configuration, in a file and in code") {
  const auto refused = [](const std::string& keys, const std::string& words) {
    const auto in_file = error_of([&] { bind_config(parse_yaml("model: {name: llama_tiny, " + keys + "}", "t")); });
    CHECK_MESSAGE(has(in_file.what(), words), in_file.what());
    auto config = testing::short_run();
    config.model = {.name = "llama_tiny"};
    const auto node = parse_yaml("{" + keys + "}", "t");
    for (const auto& member : node.members()) config.model.options.put(member);
    CHECK_MESSAGE(has(error_of([&] { check_config(config); }).what(), words), words);
  };
  refused("lora: {rank: 8}", "targets is empty");
  refused("lora: {targets: [attention], rank: -1}", "model.lora.rank");
  refused("lora: {targets: [attention], r: 4}", "rank");
  refused("lora: {targets: [attention], dropout: 1}", "model.lora.dropout");
  refused("lora: 3", "model.lora");
  refused("lora: {targets: [attention]}, freeze: [head]", "model.freeze");
  refused("freeze: {a: 1}", "model.freeze");
  refused("lorra: {targets: [attention]}", "did you mean 'lora'");
  const auto node = resolved(bind_config(parse_yaml("model: {name: llama_tiny, lora: {targets: [attention]}}", "t")));
  CHECK(has(to_yaml_line(node), "lora: {rank: 0, alpha: 0, dropout: 0, targets: [attention], also_train: [], from: \"\"}"));
  CHECK_FALSE(has(to_yaml_line(resolved(bind_config(parse_yaml("model: {name: llama_tiny}", "t")))), "freeze"));
}

TEST_CASE("the seed decides the first values of adapters, and a fresh adapter changes no output of a model") {
  const auto parts = builtin_parts();
  for (const std::string name : {"resnet18", "vit_tiny_cifar10", "gpt2_tiny", "llama_tiny"}) {
    CAPTURE(name);
    const PartConfig tuned = part(name, {{"lora", ConfigNode{{"targets", ConfigNode::list({"*"})}}}});
    auto model = parts.models.make(tuned, "model"), other = parts.models.make(tuned, "model");
    model.module->eval();
    const auto batch = example_batch(model.inputs, {.samples = 2});
    const auto before = model.forward(batch).first();
    tune(model, tuned, parts, 5);
    CHECK(torch::equal(model.forward(batch).first(), before));
    tune(other, tuned, parts, 5);
    const auto first = copies(*model.module), second = copies(*other.module);
    size_t adapters = 0;
    for (const auto& p : first)
      if (has(p.first, "lora_A")) {
        ++adapters;
        CHECK_MESSAGE(torch::equal(p.second, second.at(p.first)), p.first);
      }
    CHECK(adapters == linear_layers(*model.module).size());
    auto third = parts.models.make(tuned, "model");
    tune(third, tuned, parts, 6);
    const auto drawn = copies(*third.module);
    for (const auto& p : first)
      if (has(p.first, "lora_A")) CHECK_FALSE_MESSAGE(torch::equal(p.second, drawn.at(p.first)), p.first);
  }
}

TEST_CASE("a run trains adapters alone; predictions, weights and PEFT's files are of what it trained") {
  TempDir dir;
  const auto parts = builtin_parts();
  Trainer trainer(tuned_run(dir, kLoraKeys));
  trainer.setup();
  const auto before = copies(*trainer.model().module);
  const auto run = trainer.fit().run_dir;
  const auto after = copies(*trainer.model().module);
  size_t changed = 0;
  for (const auto& p : after) {
    const bool trained = has(p.first, "lora_") || p.first.starts_with("heads.");
    CHECK_MESSAGE(torch::equal(p.second, before.at(p.first)) != trained, p.first);
    changed += trained ? 1 : 0;
  }
  CHECK(changed == 2 * 4 + 2);
  const auto state = trainer.state();
  for (const auto& slot : state.at("optimizer").tensors)
    CHECK_MESSAGE(((has(slot.first, "lora_") || has(slot.first, "heads."))), slot.first);

  const auto x = torch::randn({3, 3, 32, 32});
  const auto expected = trainer.predict(x);
  const auto predictor = Predictor::from_checkpoint(run, "cpu");
  for (const auto& p : parameters_of(*predictor.model().module)) CHECK_FALSE(has(p.name, "lora_"));
  CHECK((predictor(x) - expected).abs().max().item<double>() < 1e-5);

  const auto weights = read_weights_file(run);
  CHECK_FALSE(has_lora(weights));
  const auto plain = part("vit_tiny_cifar10", {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}, {"qkv", "split"}});
  auto model = parts.models.make(plain, "model");
  load_weights(model, weights);
  model.module->eval();
  CHECK((model.forward(x) - expected).abs().max().item<double>() < 1e-5);

  // Takes only the adapter from the run, and loads it on the weights from which the run began.
  save_checkpoint_adapter(run, (dir / "adapter").string());
  auto base = parts.models.make(plain, "model");
  NamedTensors first;
  for (const auto& [name, value] : before)
    if (!has(name, "lora_")) first.emplace_back(name, value);
  load_weights(base, first);
  auto with_adapter = plain;
  with_adapter.options.set("lora.from", (dir / "adapter").string());
  merge_adapter_of(base, with_adapter, parts);
  base.module->eval();
  CHECK((base.forward(x) - expected).abs().max().item<double>() < 1e-5);
  CHECK(has(error_of([&] { read_weights_file((dir / "adapter").string()); }).what(), "model.lora.from"));
}

TEST_CASE("a run from an adapter is resumed without its file") {
  TempDir dir;
  const auto first = Trainer(tuned_run(dir, kLoraKeys)).fit();
  save_checkpoint_adapter(first.run_dir, (dir / "adapter").string());
  auto config = tuned_run(dir, "lora: {from: " + (dir / "adapter").string() + "}");
  config.output.name = "second";
  Trainer trainer(config);
  trainer.setup();
  const auto* module = trainer.model().module.get();
  const auto saved = load_checkpoint(first.last_checkpoint, {"model"}).at("model").tensors;
  int64_t adapted = 0, heads = 0;
  for (const auto& [name, value] : copies(*module)) {
    if (!has(name, "lora_") && !name.starts_with("heads.")) continue;
    CHECK_MESSAGE(torch::equal(value, saved.at(name)), name);
    ++(name.starts_with("heads.") ? heads : adapted);
  }
  CHECK((adapted > 0 && heads > 0));
  const auto second = trainer.fit();
  std::filesystem::remove_all(dir / "adapter");
  const auto again = load_config((std::filesystem::path(second.run_dir) / "config.yaml").string());
  CHECK(has(to_yaml_line(again.model.options), "rank: 2, alpha: 6"));
  Trainer resumed(again);
  CHECK(resumed.resume(second.last_checkpoint) == second.last_checkpoint);
  const auto x = torch::randn({2, 3, 32, 32});
  CHECK(torch::equal(resumed.predict(x), trainer.predict(x)));
}

TEST_CASE("frozen parameters stay as they are, and the optimizer has no state for them") {
  TempDir dir;
  Trainer trainer(tuned_run(dir, "freeze: [conv_proj, class_token, '*.bias']"));
  trainer.setup();
  const auto before = copies(*trainer.model().module);
  trainer.fit();
  const auto after = copies(*trainer.model().module);
  const auto state = trainer.state();
  for (const auto& p : after) {
    const auto& name = p.first;
    const bool frozen = name.starts_with("conv_proj") || name == "class_token" || name.ends_with(".bias");
    CHECK_MESSAGE(torch::equal(p.second, before.at(name)) == frozen, name);
    for (const auto& slot : state.at("optimizer").tensors) CHECK_FALSE(((frozen && slot.first.ends_with("/" + name))));
  }
  CHECK(has(error_of([&] { Trainer(tuned_run(dir, "freeze: [tail]")).setup(); }).what(), "'tail' matches no parameter"));
  CHECK(has(error_of([&] { Trainer(tuned_run(dir, "freeze: ['*']")).setup(); }).what(), "no parameter would be left to train"));
}
