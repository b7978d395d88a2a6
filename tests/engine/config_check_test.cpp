// Options that were filled in code pass the same checks as those of a file.
#include "testing.hpp"

#include <functional>
#include <tuple>

#include "environment_variable.hpp"
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
      {[](C& c) { c.ema.decay = 2; }, "ema.decay"},
      {[](C& c) { c.grad_scaler.growth_factor = 1; }, "grad_scaler.growth_factor"},
      {[](C& c) { c.precision = "fp8"; }, "precision: 'fp8' is not known"},
      {[](C& c) { c.deterministic = "yes"; }, "deterministic"},
      {[](C& c) { c.seed = -1; }, "seed"},
      {[](C& c) { c.dump.sample = 0; }, "dump.sample"},
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
      {[](C& c) { c.grad_scaler.enabled = "true"; }, "{precision: 32-true, grad_scaler: {enabled: true}}", "a loss scale makes no sense"},
      {[](C& c) { c.amp = {.fp32_modules = {"head"}, .low_precision_modules = {"head"}}; },
       "amp: {fp32_modules: [head], low_precision_modules: [head]}", "is in fp32_modules and in low_precision_modules"},
      {[](C& c) { c.dump.steps = {"6-4"}; }, "dump: {steps: [6-4]}", "ends before it begins"},
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

TEST_CASE("five mistakes are five, wherever they stand") {
  const auto e = error_of([] {
    bind_config(
        parse_yaml("device: gpu\nprecision: fp8\ntrainer: {max_epochs: 0.5, gradient_checkpointing: some}\n"
                   "data: {name: generated, num_workers: many}\n",
                   "a.yaml"));
  });
  CHECK_MESSAGE(has(e.what(), "5 mistakes"), e.what());
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
  const auto data = small_pictures(8);
  usage([&] { Loader(data, {}, {.batch_size = 2, .prefetch_factor = 65}); }, "prefetch_factor is 65");
}

TEST_CASE("a run of several processes is refused by the name of the variable") {
  RunConfig config{.device = "cpu"};
  config.output.dir = "";
  const auto message = [&] {
    const auto e = error_of([&] { Trainer trainer(config); });
    CHECK(e.kind() == ErrorKind::Usage);
    return std::string(e.what());
  };
  {
    const EnvironmentVariable world("WORLD_SIZE", "2");
    const auto said = message();
    CHECK_MESSAGE(has(said, "WORLD_SIZE is 2"), said);
    CHECK_MESSAGE(has(said, "hint: start one process"), said);
  }
  const EnvironmentVariable tasks("SLURM_NTASKS", "4"), step("SLURM_STEP_ID", "0"), process("SLURM_PROCID", "0");
  const auto said = message();
  CHECK_MESSAGE(has(said, "SLURM_NTASKS is 4"), said);
  CHECK_MESSAGE(has(said, "srun --ntasks=1"), said);
}
