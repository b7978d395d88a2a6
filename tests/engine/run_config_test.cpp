#include "testing.hpp"

#include "npu_train/engine/run_config.hpp"

#include <fstream>
#include <set>

#include <ATen/ops/zeros.h>

#include "npu_train/core/log.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {
std::string message(const std::string& yaml) {
  const auto e = error_of([&] { bind_config(parse_yaml(yaml, "a.yaml")); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}
}  // namespace

TEST_CASE("the file of the plan binds") {
  const auto c = bind_config(parse_yaml(R"(
seed: 42
deterministic: false
device: auto
precision: auto
model: {name: resnet50, num_classes: 10, stem: imagenet}
data: {name: cifar10, root: data/cifar-10-batches-bin, batch_size: 128, num_workers: auto}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 1.0e-4}
lr_scheduler: {name: step, step_size: 30, gamma: 0.1, interval: epoch}
trainer: {max_epochs: 90, accumulate_grad_batches: 1, gradient_clip_val: 0}
grad_scaler: {enabled: auto, init_scale: 65536, growth_factor: 2, backoff_factor: 0.5, growth_interval: 2000}
checkpoint: {monitor: val/acc1, mode: max, save_top_k: 1, save_last: true}
)",
                                        "a.yaml"));
  CHECK(c.trainer.max_epochs == 90);
  CHECK(c.optimizer.name == "sgd");
  CHECK(c.grad_scaler.init_scale == 65536);
}

TEST_CASE("every configuration of the repository binds, and prints as what it is") {
  int files = 0;
  for (const auto& item : fs::directory_iterator(fs::path(NPU_TRAIN_SOURCE_DIR) / "configs")) {
    CAPTURE(item.path().string());
    const auto config = load_config(item.path().string());
    const auto text = to_yaml(resolved(config));
    CHECK(to_yaml(resolved(bind_config(parse_yaml(text, "printed")))) == text);
    ++files;
  }
  CHECK(files >= 6);
}

TEST_CASE("the shipped recipe of ResNet-50: 0.1 in epochs 0 to 29, 0.01 from epoch 30, 0.001 from epoch 60") {
  const auto parts = builtin_parts();
  const auto config = load_config((fs::path(NPU_TRAIN_SOURCE_DIR) / "configs/resnet50_cifar10.yaml").string(), {}, parts);
  ParameterSet parameters;
  parameters.add({.name = "weight", .value = at::zeros({1})});
  const auto optimizer = parts.optimizers.make(config.optimizer, "optimizer", parameters);
  ScheduleContext context;
  context.total_epochs = config.trainer.max_epochs;
  context.base_lr = optimizer->lr();
  const auto schedule = parts.schedules.make(config.lr_scheduler, "lr_scheduler", context);
  CHECK(config.trainer.max_epochs == 90);
  CHECK(schedule->by_epoch());
  for (int epoch = 0; epoch < 90; ++epoch) {
    CAPTURE(epoch);
    const double expected = epoch < 30 ? 0.1 : epoch < 60 ? 0.01 : 0.001;
    CHECK(optimizer->lr() * schedule->factor(epoch) == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("errors are reported together, each with place and nearest name") {
  const auto text = message(
      "trainer: {max_epoch: 3, accumulate_grad_batches: none}\noptimizer: {name: sdg}\nprecission: auto\nmodel: {name: resnet50, steem: "
      "small}\n");
  CHECK(has(text, "a.yaml:1:"));
  CHECK(has(text, "max_epochs"));
  CHECK(has(text, "accumulate_grad_batches"));
  CHECK(has(text, "'sgd'"));
  CHECK(has(text, "precision"));
  CHECK(has(text, "stem"));
  CHECK(has(text, "a.yaml:4:"));
}

TEST_CASE("impossible values") {
  struct Row {
    const char *yaml, *place, *given;
  };
  for (const Row& row :
       {Row{"precision: fp8", "a.yaml:1:12: precision", "'fp8'"}, Row{"deterministic: maybe", "a.yaml:1:16: deterministic", "'maybe'"},
        Row{"seed: -1", "a.yaml:1:7: seed", "'-1'"}, Row{"optimizer: 3", "a.yaml:1:12: optimizer.name", "'3'"},
        Row{"trainer: [1, 2]", "a.yaml:1:10: trainer", "a list of 2"}, Row{"- a list", "a.yaml:1:1: ", "a list of 1"},
        Row{"optimizer: {name: sgd, lr: -1}", "a.yaml:1:28: optimizer.lr", "'-1'"}}) {
    const auto text = message(row.yaml);
    CAPTURE(text);
    CHECK(has(text, row.place));
    CHECK(has(text, row.given));
  }
}

TEST_CASE("overrides take precedence, and create missing sections") {
  TempDir dir;
  std::ofstream(dir / "c.yaml") << "trainer: {max_epochs: 90}\n";
  const auto c = load_config((dir / "c.yaml").string(),
                             {"trainer.max_epochs=3", "precision=16-mixed", "optimizer={name: adamw, lr: 0.01}", "average.enabled=true"});
  CHECK(c.trainer.max_epochs == 3);
  CHECK(c.precision == "16-mixed");
  CHECK(c.optimizer.name == "adamw");
  CHECK(c.average.enabled);
  const auto e = error_of([&] { load_config((dir / "c.yaml").string(), {"trainer.max_epoch=3"}); });
  CHECK(has(e.what(), "command line"));
  CHECK(error_of([&] { load_config((dir / "none.yaml").string()); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the earlier name of the section average is taken, alone and as an addition to it") {
  const auto bound = [](const std::string& yaml) { return bind_config(parse_yaml(yaml, "a.yaml")).average; };
  CHECK(bound("ema: {decay: 0.5}").enabled);
  CHECK(bound("ema: {decay: 0.5}").decay == 0.5);
  CHECK(bound("{average: {decay: 0.5}, ema: {warmup: false}}").decay == 0.5);
  CHECK_FALSE(bound("{average: {decay: 0.5}, ema: {warmup: false}}").warmup);
  const auto twice = error_of([&] { bound("{average: {decay: 0.5}, ema: {decay: 0.6}}"); });
  CHECK(has(twice.what(), "ema.decay"));
  CHECK(has(twice.what(), "the earlier name of average.decay"));
  CHECK(has(error_of([&] { bound("{average: {decay: 0.5}, ema: 3}"); }).what(), "the earlier name of average"));
  CHECK(has(error_of([&] { bound("{ema: {decay: 2}}"); }).what(), "average.decay"));
  TempDir dir;  // an override wins, by either name
  std::ofstream(dir / "earlier.yaml") << "ema: {enabled: false, decay: 0.5}\n";
  std::ofstream(dir / "present.yaml") << "average: {enabled: false, decay: 0.5}\n";
  for (const char* file : {"earlier.yaml", "present.yaml"})
    for (const std::string section : {"ema", "average"}) {
      const auto average = load_config((dir / file).string(), {section + ".enabled=true", section + ".decay=0.6"}).average;
      CHECK(average.enabled);
      CHECK(average.decay == 0.6);
      const auto replaced = load_config((dir / file).string(), {section + "={warmup: false}"}).average;
      CHECK(replaced.enabled);  // enabled, as any section that is given
      CHECK(replaced.decay == AverageOptions{}.decay);
      CHECK_FALSE(replaced.warmup);
    }
  const auto present = with_present_names(parse_yaml("{ema: {decay: 0.5}, output: {tensorboard: false}}", "a.yaml"));
  CHECK(present.find("average")->find("decay")->mark().str() == "a.yaml:1:15");
  CHECK(present.find("output")->find("logger")->items().size() == 1);
  std::string why;
  const auto comparable = [&](const std::string& yaml) {
    return comparable_config(parse_yaml("{model: {name: vit_tiny_cifar10}, data: {name: generated}, " + yaml + "}", "a.yaml"), why);
  };
  CHECK(to_yaml(comparable("ema: {decay: 0.5}").value()) == to_yaml(comparable("average: {decay: 0.5}").value()));
}

TEST_CASE("keys of another kind of average are refused by name") {
  const auto bound = [](const std::string& text) { return bind_config(parse_yaml("average: {" + text + "}", "a.yaml")).average; };
  const auto refused = [&](const std::string& text) { return std::string(error_of([&] { bound(text); }).what()); };
  CHECK(has(refused("kind: swa, decay: 0.9"), "average.decay: belongs to average.kind=ema, and the kind is swa; allowed with it: start"));
  CHECK(has(refused("lr: 0.1"), "average.lr: belongs to average.kind=swa, and the kind is ema"));
  CHECK(has(refused("kind: checkpoints, every: 2"), "average.every"));
  CHECK(has(refused("last: 3"), "average.last"));
  CHECK(has(refused("kind: swa, anneal: linear"), "average.anneal: says how the rate moves to average.lr, which is 0"));
  CHECK(bound("kind: swa, lr: 0.1, anneal: linear, anneal_epochs: 3").anneal == "linear");
  CHECK(bound("kind: swa, decay: 0.9, enabled: false").decay == 0.9);  // the key is only reported as without effect
  CHECK(bound("kind: swa, decay: 0.9999, last: 5").kind == "swa");     // the resolved configuration of a run has all keys
  const auto plateau = "{lr_scheduler: {name: plateau, monitor: val/loss}, average: {kind: swa, lr: 0.1}}";
  CHECK(has(error_of([&] { bind_config(parse_yaml(plateau, "a.yaml")); }).what(), "would not become average.lr, 0.1"));
}

TEST_CASE("data.collate is a part like others, and is left out of a configuration that does not name it") {
  const auto text = [](const std::string& collate) { return "data: {name: generated" + collate + "}"; };
  const auto shown = [&](const std::string& collate) { return to_yaml(resolved(bind_config(parse_yaml(text(collate), "a.yaml")))); };
  CHECK_FALSE(has(shown(""), "collate"));
  CHECK_FALSE(has(shown(", collate: "), "collate"));
  CHECK(has(shown(", collate: stack"), "collate: {name: stack}"));
  CHECK(has(shown(", collate: {name: pad, fields: [boxes]}"), "multiple_of: 1"));
  const auto refused = [&](const std::string& collate) {
    return std::string(error_of([&] { bind_config(parse_yaml(text(collate), "a.yaml")); }).what());
  };
  CHECK(has(refused(", collate: pad"), "the fields whose first dimension varies"));
  CHECK(has(refused(", collate: pda"), "did you mean 'pad'?"));
  CHECK(has(refused(", collate: {name: pad, fields: [boxes], multiple_of: 0}"), "data.collate.multiple_of"));

  auto parts = builtin_parts();
  parts.collates.add<NoOptions>("packed", "one row", [](const NoOptions&) -> Collate { return {}; });
  CHECK_NOTHROW(bind_config(parse_yaml(text(", collate: packed"), "a.yaml"), parts));
}

TEST_CASE("a section that is given is on, unless it says otherwise, and keys without effect are known") {
  const auto bound = [](const std::string& yaml) { return bind_config(parse_yaml(yaml, "a.yaml")); };
  CHECK_FALSE(bound("seed: 1").average.enabled);
  CHECK_FALSE(bound("seed: 1").early_stopping.enabled);
  CHECK(bound("average: {decay: 0.5}").average.enabled);
  CHECK(bound("average: {}").average.enabled);
  CHECK(bound("average:").average.enabled);
  CHECK(bound("early_stopping: {patience: 1}").early_stopping.enabled);
  CHECK_FALSE(bound("early_stopping: {patience: 1, enabled: false}").early_stopping.enabled);
  CHECK(bound("checkpoint: {save_top_k: 2}").checkpoint.enabled);
  CHECK(bound("grad_scaler: {init_scale: 4}").grad_scaler.enabled == "auto");
  CHECK(disabled_keys(bound("early_stopping: {patience: 1, enabled: false}")) == std::vector<std::string>{"early_stopping.patience"});
  CHECK(disabled_keys(bound("{average: {decay: 0.5, enabled: false}, checkpoint: {enabled: false, save_top_k: 3}}")) ==
        std::vector<std::string>{"average.decay", "checkpoint.save_top_k"});
  CHECK(disabled_keys(bound("average: {decay: 0.5}")).empty());
  CHECK(disabled_keys(bound(to_yaml(resolved(RunConfig{})))).empty());  // because every key is written with its default
  CHECK_FALSE(bound(to_yaml(resolved(RunConfig{}))).average.enabled);
  CHECK(error_of([&] { bound("average: 3"); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a struct written in code is the same configuration") {
  const RunConfig config{.device = "cpu", .precision = "bf16-mixed", .trainer = {.max_epochs = 5}};
  CHECK(config.seed == 42);
  CHECK(config.optimizer.name == "sgd");
  CHECK(has(to_yaml(resolved(config)), "max_epochs: 5"));
}

TEST_CASE("for a comparison every default is filled in, and what the data decide is marked") {
  std::string why;
  const auto whole = [&](const std::string& yaml) {
    auto node = comparable_config(parse_yaml(yaml, "a.yaml"), why);
    REQUIRE_MESSAGE(node, why);
    return *node;
  };
  const auto node = whole("{model: resnet50, data: {name: generated, train_transforms: [random_crop, normalize]}, optimizer: sgd}");
  CHECK(node.find("model")->find("num_classes")->scalar() == kLeftToData);
  CHECK(node.find("optimizer")->find("momentum") != nullptr);
  const auto& steps = node.find("data")->find("train_transforms")->items();
  CHECK(steps.at(0).find("padding") != nullptr);
  CHECK(steps.at(1).find("mean")->scalar() == kLeftToData);
  CHECK(whole("{model: {name: resnet50, num_classes: 7}, data: generated}").find("model")->find("num_classes")->scalar() == "7");
  CHECK(whole("{model: {name: of_another_library, width: 3}, data: generated}").find("model")->find("width")->scalar() == "3");
  for (const auto& [yaml, words] : {std::pair("{model: resnet50, data: generated, sed: 1}", "sed: no such key; did you mean 'seed'?"),
                                    std::pair("{model: resnet50}", "it names no data"), std::pair("{data: generated}", "it names no model"),
                                    std::pair("[1, 2]", "not a configuration of train_app")}) {
    CHECK_FALSE(comparable_config(parse_yaml(yaml, "a.yaml"), why));
    CHECK_MESSAGE(has(why, words), why);
  }
}

TEST_CASE("a key without its section has a full name") {
  for (const auto& [key, full] :
       {std::pair("lr", "optimizer.lr"), std::pair("max_epochs", "trainer.max_epochs"), std::pair("epochs", "trainer.max_epochs"),
        std::pair("batch_size", "data.batch_size"), std::pair("num_classes", "model.num_classes"),
        std::pair("step_size", "lr_scheduler.step_size"), std::pair("label_smoothing", "task.label_smoothing"),
        std::pair("monitor", "checkpoint.monitor"), std::pair("seed", ""), std::pair("scheduler", ""), std::pair("nothing_like_it", "")})
    CHECK(full_key(key) == full);
  const auto text = message("lr: 0.1\nseed: -1\nepochs: 3\n");
  CHECK_MESSAGE(has(text, "3 errors"), text);
  CHECK_MESSAGE(has(text, "a.yaml:1:1: lr: no such key; did you mean optimizer.lr?"), text);
}

TEST_CASE("the recipe for ImageNet's weights transforms images like ImageNet's trainings") {
  const auto config = load_config((fs::path(NPU_TRAIN_SOURCE_DIR) / "configs/resnet50_cifar10_224.yaml").string());
  std::string why;
  const auto node = comparable_config(to_node(config), why);
  REQUIRE_MESSAGE(node, why);
  const auto line = [&](const char* list) { return to_yaml_line(*node->find("data")->find(list)); };
  const std::string normalize = "{name: normalize, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}";
  CHECK(line("train_transforms") ==
        "[{name: random_resized_crop, size: 0, scale: [0.08, 1], ratio: [0.75, 1.3333333333333333], interpolation: bilinear}, "
        "{name: horizontal_flip, p: 0.5}, " +
            normalize + "]");
  CHECK(line("val_transforms") ==
        "[{name: resize, size: 256, exact: false, crop_ratio: 1, interpolation: bilinear}, {name: center_crop, size: 0}, " + normalize +
            "]");
  CHECK(node->find("data")->find("image_size")->scalar() == "224");
}

TEST_CASE("the optional transforms of that recipe work once their lines are no comments") {
  std::ifstream file(fs::path(NPU_TRAIN_SOURCE_DIR) / "configs/resnet50_cifar10_224.yaml");
  std::string text, line;
  int uncommented = 0;
  while (std::getline(file, line)) {
    if (const auto at = line.find("# - {name: "); at != std::string::npos) line.erase(at, 2), ++uncommented;
    text += line + "\n";
  }
  REQUIRE(uncommented == 2);
  const TempDir dir;
  std::ofstream(dir / "recipe.yaml") << text;
  std::string why;
  const auto node = comparable_config(to_node(load_config((dir / "recipe.yaml").string())), why);
  REQUIRE_MESSAGE(node, why);
  const auto transforms = to_yaml_line(*node->find("data")->find("train_transforms"));
  CHECK_MESSAGE(has(transforms, "{name: color_jitter, brightness: 0.2, contrast: 0.2, saturation: 0.2, hue: 0.1}"), transforms);
  CHECK_MESSAGE(has(transforms, "{name: random_rotation, degrees: 15}"), transforms);
}

TEST_CASE("an error is where it was written: an override is not a line of the file, and neither is a metric") {
  const auto refused = [](const std::string& yaml, const std::string& override) {
    return std::string(error_of([&] {
                         auto node = parse_yaml(yaml, "a.yaml");
                         if (!override.empty()) apply_override(node, override);
                         bind_config(node);
                       }).what());
  };
  const std::string model = "model: {name: resnet18}\n";
  CHECK_MESSAGE(has(refused(model, "model.name=resnt18"), "command line: model.name: no model has the name 'resnt18'"),
                refused(model, "model.name=resnt18"));
  CHECK(has(refused("model: {stem: small, name: resnt18}\n", ""), "a.yaml:1:28: model.name: no model"));
  CHECK(has(refused("model: resnt18\n", ""), "a.yaml:1:8: model.name: no model"));
  const auto metric = refused("task:\n  name: classifier\n  metrics:\n    - {name: accuracy, kk: 2}\n    - acuracy\n", "");
  CHECK_MESSAGE(has(metric, "a.yaml:4:24: task.metrics.0.kk: no such key"), metric);
  CHECK_MESSAGE(has(metric, "a.yaml:5:7: task.metrics.1.name: no metric has the name 'acuracy'"), metric);
  const auto overridden = refused("", "task={name: classifier, metrics: [acuracy]}");
  CHECK_MESSAGE(has(overridden, "command line: task.metrics.0.name: no metric"), overridden);
}

TEST_CASE("what other programs call a key is answered with the key, in every section") {
  for (const auto& [yaml, words] :
       {std::pair("optimizer: {name: adamw, learning_rate: 1}", "optimizer.learning_rate: no such key; the name here is lr"),
        std::pair("optimizer: {type: adamw}", "optimizer.type: no such key; the name here is name"),
        std::pair("trainer: {batch_size: 4}", "trainer.batch_size: no such key; the key is data.batch_size"),
        std::pair("trainer: {precision: 16}", "trainer.precision: no such key; the key is precision"),
        std::pair("lr_scheduler: {name: step, lr_step_size: 4}", "lr_scheduler.lr_step_size: no such key; the name here is step_size"),
        std::pair("per_device_train_batch_size: 4", "per_device_train_batch_size: no such key; did you mean data.batch_size?")}) {
    const auto text = message(yaml);
    CHECK_MESSAGE(has(text, words), text);
  }
}

TEST_CASE("every name of the table of other programs leads to a key that exists") {
  const auto parts = builtin_parts();
  const auto fields = config_fields(parts);
  std::set<std::string> known;
  const auto add = [&](const std::string& section, const std::vector<FieldInfo>& keys) {
    for (const auto& key : keys) known.insert(section + "." + key.name);
  };
  for (const auto& field : fields) {
    known.insert(field.name);
    known.insert(field.name + ".name");  // name of a part
    add(field.name, field.children);
  }
  for (const auto& name : parts.models.names()) add("model", parts.models.describe(name));
  for (const auto& name : parts.datasets.names()) add("data", parts.datasets.describe(name));
  for (const auto& name : parts.tasks.names()) add("task", parts.tasks.describe(name));
  for (const auto& name : parts.optimizers.names()) add("optimizer", parts.optimizers.describe(name));
  for (const auto& name : parts.schedules.names()) add("lr_scheduler", parts.schedules.describe(name));
  std::ifstream table(fs::path(NPU_TRAIN_SOURCE_DIR) / "src/core/facts/other_names.tsv");
  int rows = 0;
  for (std::string line; std::getline(table, line);) {
    const auto tab = line.find('\t');
    if (line.starts_with("#") || line == "other\tkey" || tab == std::string::npos) continue;
    CAPTURE(line);
    CHECK(known.count(line.substr(tab + 1)) == 1);
    ++rows;
  }
  CHECK(rows > 100);
}

TEST_CASE("the name of a run stays under output.dir") {
  for (const char* name : {"../x", "a/../../x", "/tmp/x", ".."}) {
    CAPTURE(name);
    auto node = ConfigNode::map();
    node.set("output.name", ConfigNode(name));
    const auto e = error_of([&] { bind_config(node); });
    CHECK_MESSAGE(has(e.what(), "output.name: '" + std::string(name) + "' leads out of output.dir"), e.what());
  }
  CHECK_NOTHROW(bind_config(parse_yaml("output: {name: a/b..c}", "a.yaml")));
}

TEST_CASE("loggers are named in a list, and the key of version 0.1.0 for TensorBoard is translated") {
  const auto names = [](const std::string& yaml) {
    std::string out;
    for (const auto& part : bind_config(parse_yaml(yaml, "a.yaml")).output.logger) out += part.name + " ";
    return out;
  };
  CHECK(names("seed: 1") == "csv tensorboard ");
  CHECK(names("output: {logger: []}").empty());
  CHECK(names("output: {logger: [{name: mlflow, experiment: nets}, csv]}") == "mlflow csv ");
  CHECK(names("output: {name: a, tensorboard: false}") == "csv ");
  CHECK(names("output: {tensorboard: true}") == "csv tensorboard ");
  const auto text = to_yaml(resolved(bind_config(parse_yaml("output: {logger: [mlflow]}", "a.yaml"))));
  CHECK_MESSAGE(has(text, "logger:\n    - {name: mlflow, dir: mlruns, experiment: \"\", run_name: \"\"}"), text);
  CHECK_FALSE(has(text, "tensorboard"));
  const auto both = message("output: {logger: [csv], tensorboard: false}");
  CHECK_MESSAGE(has(both, "a.yaml:1:25: output.tensorboard: no such key; the name here is logger"), both);
  CHECK(has(message("output: {tensorboard: maybe}"), "the name here is logger"));
  auto earlier = parse_yaml("output: {tensorboard: false}", "a.yaml");
  apply_override(earlier, "output.logger=[mlflow]");
  CHECK(bind_config(earlier).output.logger.at(0).name == "mlflow");
  auto later = parse_yaml("output: {logger: [csv]}", "a.yaml");
  apply_override(later, "output.tensorboard=true");
  CHECK(has(error_of([&] { bind_config(later); }).what(), "the name here is logger"));
  CHECK(has(message("output: {logger: [csv, {name: csv}]}"), "'csv' is there twice"));
  const auto unknown = message("output: {logger: [cvs]}");
  CHECK_MESSAGE(has(unknown, "output.logger.0.name: no logger has the name 'cvs'; did you mean 'csv'?"), unknown);
  CHECK(has(message("output: {logger: [{name: mlflow, folder: x}]}"), "folder"));
  CHECK(has(message("output: {logger: csv}"), "write [csv]"));
}
