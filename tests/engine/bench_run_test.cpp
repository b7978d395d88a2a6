#include "testing.hpp"

#include <cmath>

#include "npu_train/engine/bench_run.hpp"
#include "short_run.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

BenchOptions quick(std::vector<std::string> what) {
  return {.what = std::move(what), .batch = 4, .warmup = 1, .steps = 3, .infer_steps = 3, .sweep_steps = 2, .pairs = 2, .machine = false};
}

}  // namespace

// First: a process that has seen a backward pass takes no further kind of device.
TEST_CASE("a size that does not fit is recorded, and the sweep goes on") {
  auto config = short_run();
  config.device = "sim_npu";
  config.sim_npu.hbm = "12MiB";
  config.model.options.set("dim", ConfigNode(int64_t{64}));
  config.model.options.set("patch_size", ConfigNode(int64_t{2}));
  const auto report = run_bench(config, quick({"batch"}));
  CHECK(report.row("batch", "batch 1")->failure.empty());
  CHECK(report.row("batch", "batch 1")->number("memory_increase_bytes") > 0);
  REQUIRE(report.row("batch", "batch 64") != nullptr);
  CHECK(report.row("batch", "batch 64")->failure == "out of memory");
}

TEST_CASE("every section gives its rows") {
  const auto report = run_bench(short_run(), quick(bench_sections()));
  CHECK(report.model == "vit_tiny_cifar10");
  CHECK(report.device == "cpu");
  CHECK(report.precision == "32-true");
  CHECK(report.parameters > 0);
  CHECK(report.flops_per_image > 0);
  CHECK(report.environment.contains("libtorch"));
  REQUIRE(report.row("step", "batch 4") != nullptr);
  CHECK(report.row("step")->samples.size() == 3);
  for (const char* key : {"img_per_s", "step_ms_median", "step_ms_min", "peak_memory_bytes", "first_step_s"}) {
    CAPTURE(key);
    CHECK(report.row("step")->number(key) > 0);
  }
  REQUIRE(report.row("train", "batch 8") != nullptr);
  CHECK(report.row("train")->samples.size() == 3);
  CHECK(report.row("infer", "batch 1")->number("latency_ms_p99") >= report.row("infer", "batch 1")->number("latency_ms_p50"));
  CHECK(report.row("forward") == nullptr);  // the device is the CPU itself
  const auto* amp = report.row("amp", "train bf16-mixed beside 32-true");
  REQUIRE(amp != nullptr);
  CHECK((amp->ratio->verdict == SpeedRatio::Verdict::TooFewPairs));
  CHECK(amp->number("loss_difference") < 0.05);
  CHECK(amp->number("loss_difference") > 0);
  for (const char* batch : {"batch 1", "batch 2", "batch 64"}) CHECK(report.row("batch", batch)->failure.empty());
  CHECK(report.row("loader", "as configured")->number("batch") == 8);
  CHECK(report.row("loader", "batch 64, 2 workers")->number("img_per_s") > 0);
  CHECK(report.row("loader", "batch 128, 4 workers") == nullptr);
  REQUIRE(report.row("loader", "device augmentation") != nullptr);
  CHECK(report.row("loader", "device augmentation")->failure.empty());
  for (const char* key : {"img_per_s", "img_per_s_host"}) CHECK(report.row("loader", "device augmentation")->number(key) > 0);
  const auto* checkpointing = report.row("checkpointing");
  REQUIRE(checkpointing != nullptr);
  CHECK(checkpointing->number("activations_bytes") > 0);
  CHECK(report.row("threads", "1 thread")->number("img_per_s") > 0);
  std::string notes;
  for (const auto& note : report.notes) notes += note + "\n";
  CHECK(has(notes, "the knee is at"));
  CHECK(has(notes, "data.batch_size="));
  CHECK(has(notes, "batches of 128, 256, 512 were left out, the data has 96 samples"));
  CHECK(has(to_html(report), "Throughput by batch"));
}

TEST_CASE("what cannot be measured is refused before anything runs") {
  CHECK(has(error_of([] { run_bench(short_run(), quick({"nonsense"})); }).what(), "allowed: step, train, infer"));
  CHECK(has(error_of([] { run_bench({}, quick({"step"})); }).what(), "no model"));
  auto config = short_run();
  config.data = {};
  CHECK(has(error_of([&] { run_bench(config, quick({"train"})); }).what(), "no data"));
  CHECK(has(error_of([&] { run_bench(config, quick({"loader"})); }).what(), "no data"));
  auto options = quick({"step"});
  options.steps = 0;
  CHECK(error_of([&] { run_bench(short_run(), options); }).kind() == ErrorKind::Usage);
}
