// Requirements for every device that trains: run on the CPU, on the simulated NPU and, if present, on a GPU.
#include "testing.hpp"

#include <cmath>

#include <ATen/ATen.h>

#include "device_under_test.hpp"
#include "engine/short_run.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/runs/verify_resume.hpp"
#include "npu_train/tools/validate/verify_determinism.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "only_if.hpp"
#include "trainer_bits.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

const std::vector<std::string> kEachMode{"32-true", "bf16-mixed", "16-mixed"};
const std::vector<std::string> kEachModel{"resnet18", "vit_tiny_cifar10"};

/// Returns a small run. The runs of the two models differ in many parts: convolutions and batch statistics, or attention and dropout;
/// momentum or moments. Both have an average and a learning rate that changes at each step.
RunConfig small_run(const std::string& model, const std::string& precision) {
  RunConfig c{.deterministic = "true", .device = device_under_test().str(), .precision = precision};
  c.model.name = model;
  if (model == "resnet18") {
    c.model.options = {{"stem", "imagenet"}, {"fused_kernels", "false"}};
    c.optimizer = {.name = "sgd", .options = {{"lr", 0.05}, {"momentum", 0.9}}};
  } else {
    c.model.options = {{"depth", 2}, {"dim", 64}, {"heads", 2}, {"patch_size", 8}, {"dropout", 0.1}};
    c.optimizer = {.name = "adamw", .options = {{"lr", 0.001}}};
  }
  c.data = {.name = "generated", .options = {{"train_size", 32}, {"val_size", 16}, {"batch_size", 8}, {"num_workers", "2"}}};
  c.lr_scheduler = {.name = "cosine", .options = {{"interval", "step"}}};
  c.grad_scaler.init_scale = 1024;  // small enough that clean steps do not overflow
  c.trainer = {.max_epochs = 2, .gradient_clip_val = 1.0, .threads = 1};
  c.average.enabled = true;
  c.output.dir = "";
  return c;
}

Batch images_batch(int64_t n = 8) {
  at::manual_seed(4);
  return Batch(at::randn({n, 3, 32, 32}), at::randint(10, {n}));
}

double loss_in(const StepReport& report) { return scalar_or(report.metrics, "loss", kNaN); }

}  // namespace

TEST_CASE("training in every precision: losses fall, parameters stay fp32, nothing is left on another device") {
  for (const auto& model : kEachModel) {
    for (const auto& mode : kEachMode) {
      CAPTURE(model);
      CAPTURE(mode);
      auto config = small_run(model, mode);
      config.lr_scheduler.name = "constant";
      Trainer trainer(config);
      trainer.setup();
      const auto batch = images_batch();
      const auto first = trainer.train_step(batch);
      CHECK(first.taken);
      StepReport last;
      for (int i = 0; i < 8; ++i) last = trainer.train_step(batch);
      CHECK(last.global_step == 9);
      CHECK(loss_in(last) < 0.8 * loss_in(first));
      CHECK(std::isfinite(last.grad_norm));
      for (const auto& p : trainer.task().parameters()) {
        CHECK((p.value.scalar_type() == at::kFloat));
        CHECK(p.value.device() == device_under_test().c10());
      }
    }
  }
}

TEST_CASE("the first loss and gradient norm are those of the CPU in fp32, as near as the precision allows") {
  for (const auto& model : kEachModel) {
    const auto first_step = [&](const std::string& device, const std::string& mode) {
      auto config = small_run(model, mode);
      config.device = device;
      if (model != "resnet18") config.model.options.set("dropout", ConfigNode(0.0));  // each device draws masks of its own
      Trainer trainer(config);
      trainer.setup();
      return trainer.train_step(images_batch());
    };
    const auto expected = first_step("cpu", "32-true");
    for (const auto& mode : kEachMode) {
      CAPTURE(model);
      CAPTURE(mode);
      const auto got = first_step(device_under_test().str(), mode);
      CHECK(loss_in(got) == doctest::Approx(loss_in(expected)).epsilon(mode == "32-true" ? 0.005 : 0.02));
      CHECK(got.grad_norm == doctest::Approx(expected.grad_norm).epsilon(mode == "32-true" ? 0.05 : 0.1));
    }
  }
}

TEST_CASE("an overflow leaves parameters, optimizer, buffers, average and learning rate as they were, bit for bit") {
  for (const auto& model : kEachModel) {
    for (const bool first : {true, false}) {
      CAPTURE(model);
      CAPTURE(first);
      Trainer trainer(small_run(model, "16-mixed"));
      trainer.setup();
      const auto batch = images_batch();
      auto huge = batch;
      huge.set("input", batch.input() * 1e6);
      if (!first) REQUIRE(trainer.train_step(batch).taken);
      const auto before = bits_of(trainer);

      const auto skipped = trainer.train_step(huge);
      CHECK_FALSE(skipped.taken);
      CHECK(skipped.loss_scale == 512);
      CHECK((bits_of(trainer) == before));
      for (const auto& p : trainer.task().parameters()) CHECK_FALSE(p.value.grad().defined());

      const auto next = trainer.train_step(batch);
      CHECK(next.taken);
      CHECK(next.lr == skipped.lr);  // the schedule did not advance
      CHECK(next.global_step == (first ? 1 : 2));
      CHECK(std::isfinite(loss_in(next)));
      CHECK((bits_of(trainer) != before));
      for (const auto& [name, value] : trainer.validate()) CHECK_MESSAGE(std::isfinite(value), name);
    }
  }
}

TEST_CASE("N steps, a checkpoint and N steps equal 2 N steps, bit for bit") {
  for (const auto& model : kEachModel) {
    for (const auto& mode : kEachMode) {
      CAPTURE(model);
      CAPTURE(mode);
      const auto report = verify_resume(small_run(model, mode), builtin_parts(), {.steps = 3});
      CHECK_MESSAGE(report.passed, report.str());
    }
  }
}

TEST_CASE("two runs give one checksum, whatever the number of loader workers") {
  for (const auto& model : kEachModel) {
    for (const auto& mode : kEachMode) {
      CAPTURE(model);
      CAPTURE(mode);
      const auto report = verify_determinism(small_run(model, mode), builtin_parts(), {.steps = 3});
      CHECK_MESSAGE(report.passed, report.str());
    }
  }
}

TEST_CASE("recomputed activations give the bits of kept ones, dropout included") {
  for (const auto& mode : kEachMode) {
    CAPTURE(mode);
    const auto trained = [&](const std::string& plan) {
      auto config = small_run("vit_tiny_cifar10", mode);
      config.trainer.gradient_checkpointing = plan;
      Trainer trainer(config);
      trainer.fit();
      return digest(trainer.state().at("model"));
    };
    CHECK(trained("blocks") == trained("none"));
  }
}

TEST_CASE("a checkpoint of the device is read on the CPU: equal weights, near predictions") {
  TempDir dir;
  auto config = small_run("resnet18", "bf16-mixed");
  config.output.dir = (dir / "runs").string();
  Trainer there(config);
  const auto saved = there.fit().last_checkpoint;
  config.device = "cpu";
  config.precision = "32-true";
  config.trainer.max_epochs = 3;
  Trainer here(config);
  here.resume(saved);
  CHECK(digest(here.state().at("model")) == digest(there.state().at("model")));
  const auto x = images_batch().input();
  const auto near = here.predict(x), far = there.predict(x);
  CHECK(far.device().is_cpu());
  CHECK((far.scalar_type() == at::kFloat));
  CHECK(at::allclose(near, far, 0.05, 0.05));  // wide: 20 layers in bf16, each rounded by up to 2^-9
  CHECK(here.fit().global_step == 12);
}

TEST_CASE("memory of the device: a step frees what it allocates" *
          only_if(name_of_device_under_test() != "cpu", "the resident set of a process is not that exact")) {
  const auto& backend = backend_of(device_under_test());
  for (const auto& mode : kEachMode) {
    CAPTURE(mode);
    Trainer trainer(small_run("resnet18", mode));
    trainer.setup();
    const auto batch = images_batch();
    for (int i = 0; i < 3; ++i) trainer.train_step(batch);
    const auto before = backend.memory(device_under_test());
    REQUIRE(before.allocated > 0);
    CHECK(before.peak > before.allocated);
    for (int i = 0; i < 5; ++i) trainer.train_step(batch);
    CHECK(backend.memory(device_under_test()).allocated == before.allocated);
  }
}

TEST_CASE("the default optimizer trains parameters of every precision") {
  for (const std::string precision : {"32-true", "16-true", "O3", "bf16-true"}) {
    CAPTURE(precision);
    auto config = short_run(precision);
    config.device = device_under_test().str();
    config.optimizer.options = {{"lr", 0.5}};
    Trainer trainer(config);
    trainer.setup();
    std::vector<at::Tensor> before;
    for (const auto& p : trainer.task().parameters()) before.push_back(p.value.detach().cpu().clone());
    trainer.fit();
    int64_t moved = 0, all = 0;
    size_t i = 0;
    for (const auto& p : trainer.task().parameters()) {
      moved += p.value.detach().cpu().ne(before[i++]).sum().item<int64_t>();
      all += p.value.numel();
    }
    CHECK(static_cast<double>(moved) > 0.9 * static_cast<double>(all));
  }
}
