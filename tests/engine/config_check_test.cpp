// Options that were filled in code must pass the same checks as those of a file.
#include "testing.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "environment_variable.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "small_trainer.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::string refused(const std::function<void(RunConfig&)>& change, const Parts& parts = builtin_parts()) {
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.output.dir = "";
  change(config);
  const auto e = error_of([&] { Trainer trainer(config, parts); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}

}  // namespace

TEST_CASE("the constructor of a Trainer refuses what a file is refused for") {
  using C = RunConfig;
  const std::pair<std::function<void(C&)>, const char*> cases[] = {
      {[](C& c) { c.trainer.accumulate_grad_batches = 0; }, "trainer.accumulate_grad_batches: '0' is out of range; allowed: at least 1"},
      {[](C& c) { c.trainer.max_epochs = -5; }, "trainer.max_epochs: '-5' is out of range"},
      {[](C& c) { c.trainer.max_time = kNaN; }, "trainer.max_time"},
      {[](C& c) { c.trainer.log_every_n_steps = 0; }, "trainer.log_every_n_steps"},
      {[](C& c) { c.trainer.gradient_clip_algorithm = "nrom"; }, "did you mean 'norm'?"},
      {[](C& c) { c.trainer.on_oom = "rtry"; }, "did you mean 'retry'?"},
      {[](C& c) { c.checkpoint.mode = "maximum"; }, "checkpoint.mode"},
      {[](C& c) { c.early_stopping.patience = -3; }, "early_stopping.patience"},
      {[](C& c) { c.average.decay = 2; }, "average.decay"},
      {[](C& c) { c.average.kind = "mean"; }, "average.kind"},
      {[](C& c) { c.average.start = -1; }, "average.start"},
      {[](C& c) { c.average.last = 0; }, "average.last"},
      {[](C& c) { c.grad_scaler.growth_factor = 1; }, "grad_scaler.growth_factor"},
      {[](C& c) { c.precision = "fp8"; }, "precision: 'fp8' is not known"},
      {[](C& c) { c.deterministic = "yes"; }, "deterministic"},
      {[](C& c) { c.seed = -1; }, "seed"},
      {[](C& c) { c.sim_npu.devices = 0; }, "sim_npu.devices"},
      {[](C& c) {
         c.optimizer = {.name = "sgd", .options = {{"lr", -1}}};
       },
       "optimizer.lr: '-1' is out of range"},
      {[](C& c) { c.optimizer.name = "sdg"; }, "did you mean 'sgd'?"},
      {[](C& c) {
         c.lr_scheduler = {.name = "cosine", .options = {{"T_mx", 3}}};
       },
       "lr_scheduler.T_mx: no such key"},
      {[](C& c) {
         c.data.options = {{"batch_size", 0}};
       },
       "data.batch_size: '0' is out of range"},
      {[](C& c) {
         c.data = {.name = "generated", .options = {{"batch_size", 0}}};
       },
       "data.batch_size: '0' is out of range"},
  };
  for (const auto& [change, words] : cases) {
    const auto message = refused(change);
    CHECK_MESSAGE(has(message, words), message);
  }
  CHECK_NOTHROW(Trainer{});
}

TEST_CASE("what keys contradict is found with the rest, in code and in a file") {
  using C = RunConfig;
  const std::tuple<std::function<void(C&)>, const char*, const char*> cases[] = {
      {[](C& c) { c.device = "gpu"; }, "device: gpu", "device: 'gpu' is not a device"},
      {[](C& c) { c.trainer.gradient_checkpointing = "blcks"; }, "trainer: {gradient_checkpointing: blcks}",
       "trainer.gradient_checkpointing"},
      {[](C& c) { c.grad_scaler.init_scale = 0.5; }, "grad_scaler: {init_scale: 0.5}", "between min_scale and max_scale"},
      {[](C& c) { c.grad_scaler.enabled = "true"; }, "{precision: 32-true, grad_scaler: {enabled: true}}", "a loss scale has no use"},
      {[](C& c) { c.amp = {.fp32_modules = {"head"}, .low_precision_modules = {"head"}}; },
       "amp: {fp32_modules: [head], low_precision_modules: [head]}", "is in fp32_modules and in low_precision_modules"},
      {[](C& c) { c.sim_npu.hbm = "much"; }, "sim_npu: {hbm: much}", "is not a size"},
      {[](C& c) {
         c.data = {.name = "generated", .options = {{"num_workers", "many"}}};
       },
       "data: {name: generated, num_workers: many}", "neither auto nor a number"},
      {[](C& c) {
         c.lr_scheduler = {.name = "cosine", .options = {{"warmup_steps", 3}}};
       },
       "lr_scheduler: {name: cosine, warmup_steps: 3}", "interval is epoch"},
      {[](C& c) { c.data = {.name = "generated", .options = parse_yaml("{train_transforms: [{name: horizontal_flip, p: 3}]}", "t")}; },
       "data: {name: generated, train_transforms: [{name: horizontal_flip, p: 3}]}", "data.train_transforms.0.p"},
  };
  for (const auto& [change, yaml, words] : cases) {
    const auto in_code = refused(change);
    CHECK_MESSAGE(has(in_code, words), in_code);
    const auto e = error_of([&yaml = yaml] { bind_config(parse_yaml(yaml, "a.yaml")); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(e.what(), words), e.what());
    CHECK_MESSAGE(has(e.what(), "a.yaml:1:"), e.what());
  }
}

TEST_CASE("what an optimizer and a schedule would refuse when they are made is found with the rest, at its key") {
  const std::tuple<PartConfig, const char*, const char*> cases[] = {
      {{"sgd", {{"nesterov", true}, {"momentum", 0}}}, "optimizer.nesterov", "it needs a momentum above 0"},
      {{"sgd", {{"lr", 1e31}}}, "optimizer.lr", "less than 1e30"},
      {{"sgd", {{"momentum", 1.5}}}, "optimizer.momentum", "between 0 and 1"},
      {{"adam", {{"betas", ConfigNode::list({0.9, 1.0})}}}, "optimizer.betas", "each must be at least 0 and less than 1"},
      {{"adamw", {{"betas", ConfigNode::list({0.9})}}}, "optimizer.betas", "betas has 1 numbers; it needs 2"},
      {{"lamb", {{"betas", ConfigNode::list({0.9, 0.99, 0.999})}}}, "optimizer.betas", "it needs 2"},
      {{"adamw", {{"eps", -1e-8}}}, "optimizer.eps", "at least 0"},
      {{"lamb", {{"weight_decay", 1e30}}}, "optimizer.weight_decay", "less than 1e30"},
      {{"cosine", {{"min_lr", 0.2}}}, "lr_scheduler.min_lr", "between 0 and the optimizer's lr, 0.1"},
      {{"polynomial", {{"interval", "step"}, {"min_lr", 7}}}, "lr_scheduler.min_lr", "the optimizer's lr"},
      {{"step", {{"step_size", 0}}}, "lr_scheduler.step_size", "at least 1"},
      {{"linear", {{"total_iters", -2}}}, "lr_scheduler.total_iters", "at least 0"},
      {{"cosine", {{"interval", "step"}, {"warmup_epochs", 3}}}, "lr_scheduler.warmup_epochs", "interval is step"},
  };
  for (const auto& [part, path, words] : cases) {
    const bool schedule = std::string(path).starts_with("lr_scheduler");
    const auto put = [&part = part, schedule](RunConfig& c) { (schedule ? c.lr_scheduler : c.optimizer) = part; };
    const auto in_code = refused(put);
    CHECK_MESSAGE((has(in_code, path) && has(in_code, words)), in_code);
    ConfigNode options{{"name", part.name}};
    for (const auto& member : part.options.members()) options.put(member);
    const auto yaml = std::string("seed: 3\n") + (schedule ? "lr_scheduler" : "optimizer") + ": " + to_yaml_line(options) + "\n";
    const auto e = error_of([&] { bind_config(parse_yaml(yaml, "a.yaml")); });
    CHECK(e.kind() == ErrorKind::Usage);
    const auto key = std::string(path).substr(std::string(path).rfind('.') + 1) + ": ";
    const auto column = yaml.find(key) + key.size() - yaml.find('\n');
    const auto place = "a.yaml:2:" + std::to_string(column) + ": " + path;
    CHECK_MESSAGE((has(e.what(), place) && has(e.what(), words)), place, "\n", e.what());
  }
}

TEST_CASE("a falling schedule of a run without an end is refused, one with a length of its own is not") {
  RunConfig c{.device = "cpu", .lr_scheduler = {.name = "cosine"}, .trainer = {.max_epochs = -1, .max_time = 60}, .output = {.dir = ""}};
  CHECK(has(error_of([&] { check_config(c); }).what(), "lr_scheduler: the run has no known length in epochs"));
  c.lr_scheduler.options.set("T_max", 5);
  CHECK_NOTHROW(check_config(c));
  c.lr_scheduler = {.name = "one_cycle", .options = {{"max_lr", 3}}};  // this schedule counts steps
  CHECK(has(error_of([&] { check_config(c); }).what(), "the run has no known length in steps"));
  c.trainer.max_steps = 10;
  int warnings = 0;
  const ScopedLogSink sink([&](LogLevel level, std::string_view) { warnings += level == LogLevel::Warning; });
  CHECK_NOTHROW(check_config(c));
  CHECK(warnings == 0);  // the run itself warns, once
}

TEST_CASE("an optimizer that a program brings is made with parameters only") {
  auto parts = builtin_parts();
  int made = 0;
  parts.optimizers.add<SgdOptions>("sgd", "my own", [&](const SgdOptions& o, const ParameterSet& set) -> std::unique_ptr<Optimizer> {
    ++made;
    REQUIRE(!set.empty());
    return std::make_unique<Sgd>(set, o);
  });
  RunConfig c{.device = "cpu", .precision = "32-true", .output = {.dir = ""}};
  c.optimizer = {"sgd", {{"nesterov", true}, {"momentum", 0}}};
  CHECK_NOTHROW(Trainer(c, parts));
  CHECK(made == 0);
}

TEST_CASE("the number of listed errors equals the count, whatever they are") {
  const std::vector<std::string> mistakes = {"seed: -1",
                                             "precision: fp8",
                                             "device: gpu",
                                             "optimizer: {name: adamw, betas: [0.9, 1]}",
                                             "lr_scheduler: {name: cosine, warmup_steps: 3}",
                                             "trainer: {gradient_checkpointing: blcks}",
                                             "grad_scaler: {init_scale: 0.5}",
                                             "dump: {steps: [6-4]}",
                                             "sim_npu: {hbm: much}",
                                             "data: {name: generated, num_workers: many}",
                                             "max_epochs: 3",
                                             "colour: red"};
  for (size_t n = 1; n <= mistakes.size(); ++n)
    for (size_t first = 0; first < mistakes.size(); ++first) {
      std::string yaml;
      for (size_t i = 0; i < n; ++i) yaml += mistakes[(first + i) % mistakes.size()] + "\n";
      const std::string message = error_of([&] { bind_config(parse_yaml(yaml, "a.yaml")); }).what();
      size_t listed = 0;
      for (size_t at = message.find("a.yaml:"); at != std::string::npos; at = message.find("a.yaml:", at + 1)) ++listed;
      CHECK_MESSAGE(listed == n, yaml, message);
      CHECK_MESSAGE(has(message, std::to_string(n) + " errors") == (n > 1), message);
    }
  std::string many = "trainer:\n";
  for (int i = 0; i < 200; ++i) many += "  wrong_" + std::to_string(i) + ": 1\n";
  const std::string message = error_of([&] { bind_config(parse_yaml(many, "a.yaml")); }).what();
  CHECK(has(message, "200 errors"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 200);
}

TEST_CASE("five errors are counted as five, in any place") {
  const auto e = error_of([] {
    bind_config(
        parse_yaml("device: gpu\nprecision: fp8\ntrainer: {max_epochs: 0.5, gradient_checkpointing: some}\n"
                   "data: {name: generated, num_workers: many}\n",
                   "a.yaml"));
  });
  CHECK_MESSAGE(has(e.what(), "5 errors"), e.what());
  for (const char* place : {"a.yaml:1:9: device", "a.yaml:2:12: precision", "a.yaml:3:", "a.yaml:4:"})
    CHECK_MESSAGE(has(e.what(), place), e.what());
}

TEST_CASE("the parts that a program may use alone check their options too") {
  const auto usage = [](const std::function<void()>& fn, const char* words) {
    const auto e = error_of(fn);
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(e.what(), words), e.what());
  };
  const TempDir dir;
  usage([&] { CheckpointStore((dir / "c").string(), {.mode = "maximum"}); }, "checkpoint.mode");
  usage([&] { CheckpointStore((dir / "c").string(), {.save_top_k = -2}); }, "checkpoint.save_top_k");
  CHECK_FALSE(std::filesystem::exists(dir / "c"));
  usage([] { precision_policy(PrecisionOptions{.mode = "16-mixed", .grad_scaler = {.growth_interval = 0}}, Device{}); },
        "grad_scaler.growth_interval");
  const auto data = small_images(8);
  usage([&] { Loader(data, {}, {.batch_size = 2, .prefetch_factor = 65}); }, "prefetch_factor is 65");
}

TEST_CASE("an incomplete description of a launch is refused before anything is opened") {
  RunConfig config{.device = "cpu"};
  config.output.dir = "";
  const EnvironmentVariable world("WORLD_SIZE", "2");
  const auto e = error_of([&] { Trainer trainer(config); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK_MESSAGE(has(e.what(), "WORLD_SIZE is 2, but RANK is not set"), e.what());
}
