#include "testing.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/short_run.hpp"
#include "environment_variable.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/tools/bench/bench_run.hpp"
#include "npu_train/tools/bench/growth.hpp"
#include "tools/bench/bench_step.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

BenchOptions quick(std::vector<std::string> what) {
  return {.what = std::move(what),
          .batch = 4,
          .warmup = 1,
          .steps = 3,
          .infer_steps = 3,
          .sweep_steps = 2,
          .pairs = 2,
          .machine = false,
          .host = {.root = "/nowhere", .environment = {}, .run = [](const auto&) { return CommandResult{}; }, .space = {}, .may_use = {}}};
}

}  // namespace

TEST_CASE("a peak below the start, as approximate counts of the system can give it, is the start") {
  BenchRow row;
  npu_train::detail::add_memory_numbers(row, 100, 90);
  CHECK(row.number("peak_memory_bytes") == 100);
  CHECK(row.number("memory_increase_bytes") == 0);
  BenchRow grown;
  npu_train::detail::add_memory_numbers(grown, 100, 130);
  CHECK(grown.number("memory_increase_bytes") == 30);
  BenchRow unknown;
  npu_train::detail::add_memory_numbers(unknown, -1, -1);
  CHECK(unknown.numbers.empty());
}

// This case comes first: a process that has run a backward pass accepts no further kind of device.
TEST_CASE("a size that does not fit is recorded, and the sweep continues") {
  auto config = short_run();
  config.device = "sim_npu";
  config.sim_npu.hbm = "12MiB";
  config.model.options.set("dim", ConfigNode(int64_t{64}));
  config.model.options.set("patch_size", ConfigNode(int64_t{2}));
  const auto report = run_bench(config, quick({"batch", "infer-batch"}));
  CHECK(report.row("infer-batch", "batch 1")->failure.empty());
  REQUIRE(report.row("infer-batch", "batch 64") != nullptr);
  CHECK(report.row("infer-batch", "batch 64")->failure == "out of memory");
  CHECK(report.row("infer-batch", "batch 64")->number("batch") == 64);
  CHECK(report.row("batch", "batch 1")->failure.empty());
  CHECK(report.row("batch", "batch 1")->number("memory_increase_bytes") > 0);
  REQUIRE(report.row("batch", "batch 64") != nullptr);
  CHECK(report.row("batch", "batch 64")->failure == "out of memory");
}

TEST_CASE("every section gives its rows") {
  auto what = bench_sections();
  std::erase(what, "scaling");  // has tests below
  std::erase(what, "null");
  const auto report = run_bench(short_run(), quick(what));
  CHECK(report.model == "vit_tiny_cifar10");
  CHECK(report.device == "cpu");
  CHECK(report.precision == "32-true");
  CHECK(report.parameters > 0);
  CHECK(report.flops_per_image > 0);
  CHECK(report.environment.contains("libtorch"));
  CHECK_FALSE(report.environment.at("allocator").empty());
  REQUIRE(report.row("step", "batch 4") != nullptr);
  CHECK(report.row("step")->samples.size() == 3);
  for (const char* key : {"samples_per_s", "step_ms_median", "step_ms_min", "peak_memory_bytes", "first_step_s"}) {
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
  const auto* infer = report.row("amp", "infer bf16-mixed beside 32-true");
  REQUIRE(infer != nullptr);
  CHECK(infer->number("loss_difference") < 0.05);
  CHECK(infer->number("loss_difference") > 0);
  CHECK(infer->number("activations_bytes") > 0);
  CHECK(infer->number("activations_bytes") < amp->number("activations_bytes"));
  CHECK(amp->number("activations_bytes") > 0);
  CHECK(amp->number("activations_32_true_bytes") > 0);
  for (const char* section : {"amp", "checkpointing"}) CHECK(report.row(section)->samples.size() == 2);  // one for each of the two pairs
  for (const char* batch : {"batch 1", "batch 2", "batch 64"}) CHECK(report.row("batch", batch)->failure.empty());
  CHECK(report.row("batch", "batch 64")->number("activations_bytes") > 8 * report.row("batch", "batch 2")->number("activations_bytes"));
  CHECK(report.row("loader", "as configured")->number("batch") == 8);
  CHECK(report.row("loader", "batch 64, 2 workers")->number("samples_per_s") > 0);
  CHECK(report.row("loader", "batch 128, 4 workers") == nullptr);
  REQUIRE(report.row("loader", "device augmentation") != nullptr);
  CHECK(report.row("loader", "device augmentation")->failure.empty());
  for (const char* key : {"samples_per_s", "samples_per_s_host"}) CHECK(report.row("loader", "device augmentation")->number(key) > 0);
  const auto* checkpointing = report.row("checkpointing");
  REQUIRE(checkpointing != nullptr);
  CHECK(checkpointing->number("activations_bytes") > 0);
  CHECK(report.row("threads", "1 thread")->number("samples_per_s") > 0);
  std::string notes;
  for (const auto& note : report.notes) notes += note + "\n";
  CHECK(has(notes, "the knee is at"));
  CHECK(has(notes, "data.batch_size="));
  CHECK(has(notes, "batches of 128, 256, 512 were omitted; the data set has 96 samples"));
  for (const char* batch : {"batch 1", "batch 2", "batch 4", "batch 8", "batch 16", "batch 32", "batch 64"}) {
    CAPTURE(batch);
    REQUIRE(report.row("infer-batch", batch) != nullptr);
    CHECK(report.row("infer-batch", batch)->number("samples_per_s") > 0);
    CHECK(report.row("infer-batch", batch)->number("latency_ms_p50") > 0);
  }
  const auto* loaded = report.row("loader", "as configured");
  CHECK(loaded->number("ms_per_batch") == doctest::Approx(1e3 * loaded->number("batch") / loaded->number("samples_per_s")));
  for (const char* title : {"Inference: throughput by batch", "Inference: latency by batch"}) CHECK(has(to_html(report), title));
  CHECK(has(to_html(report), "Throughput by batch"));
  for (const char* section : {"step", "train", "infer", "batch"}) {
    CAPTURE(section);
    for (const char* key : {"initial_memory_bytes", "peak_memory_bytes"}) CHECK(report.row(section)->number(key) > 0);
    CHECK(report.row(section)->number("memory_increase_bytes") >= 0);
  }
  CHECK(report.row("step")->number("moved_bytes") > 4.0 * static_cast<double>(report.parameters));
  CHECK(std::isnan(report.row("step")->number("share_of_copy")));  // the machine was not measured
  CHECK(has(report.row("power", "host")->failure, "not readable: no /sys/class/powercap"));
  CHECK(report.row("power", "device") == nullptr);
}

TEST_CASE("every section measures the model that a training would take") {
  auto config = short_run();
  config.model = {.name = "resnet18", .options = {{"stem", "small"}}};
  const auto report = run_bench(config, quick({"step", "train", "infer"}));
  CHECK(report.input == "3x32x32, 10 classes");  // from the data; the model's defaults are 224 and 1000
  CHECK(report.data == "generated, 96 samples");
  CHECK(report.parameters == 11'173'962);
  CHECK(has(to_text(report), "3x32x32, 10 classes"));
  auto missing = config;
  missing.data = {.name = "cifar10", .options = {{"root", "/nowhere"}}};
  const auto without = run_bench(missing, quick({"infer"}));
  CHECK(without.input == "3x32x32, 10 classes");  // the shape that the data set would have; it is not opened
  CHECK(without.data == "cifar10, 50,000 samples");
  auto small = quick({"step", "train"});  // images of 224
  small.batch = small.steps = 1;
  const auto reading = run_bench(missing, small);
  CHECK(reading.input == "3x224x224, 1000 classes");
  CHECK(has(reading.notes.at(0), "/nowhere"));
  CHECK(has(reading.notes.at(0), "the model's own image size and number of classes"));
}

TEST_CASE("an impossible size or section is recorded, and the others continue") {
  auto config = short_run();
  config.model = {.name = "resnet18", .options = {{"image_size", 16}}};  // one value per channel at batch 1
  auto options = quick({"batch", "checkpoint", "threads"});
  options.sweep_steps = 1;
  const EnvironmentVariable nowhere("TMPDIR", "/nowhere");  // no space for a checkpoint
  const auto report = run_bench(config, options);
  CHECK(has(report.row("batch", "batch 1")->failure, "more than one value per channel"));
  CHECK(report.row("batch", "batch 2")->failure.empty());
  REQUIRE(report.row("checkpoint", "failed") != nullptr);
  CHECK(has(report.row("checkpoint", "failed")->failure, "/nowhere"));
  CHECK(report.exit_code == static_cast<int>(ErrorKind::Checkpoint));
  CHECK(report.row("threads", "1 thread")->number("samples_per_s") > 0);
  CHECK((error_of([&] { run_bench(config, quick({"checkpoint"})); }).kind() == ErrorKind::Checkpoint));  // nothing else was measured
}

TEST_CASE("a benchmark that is stopped reports what is done") {
  for (const char* last : {"train", "infer", "amp", "batch", "loader", "threads"}) {
    CAPTURE(last);
    auto options = quick({"step", last});
    int64_t asked = 0;
    options.stopped = [&] { return ++asked > 10; };
    options.steps = 100'000'000;  // never reached
    options.infer_steps = options.sweep_steps = options.pairs = options.steps;
    if (std::string(last) != "train") options.what = {last};
    const auto report = run_bench(short_run(), options);
    REQUIRE_FALSE(report.notes.empty());
    CHECK(has(report.notes.back(), "interrupted in section"));
  }
}

TEST_CASE("the threads of the configuration are those of the complete report") {
  const auto before = environment().at("threads");
  auto config = short_run();
  config.trainer.threads = before == "1" ? 2 : 1;
  const auto report = run_bench(config, quick({"threads"}));
  CHECK(report.environment.at("threads") == std::to_string(config.trainer.threads));
  CHECK(report.row("threads", "1 thread") != nullptr);
  CHECK((report.row("threads", "2 threads") == nullptr) == (config.trainer.threads == 1));
  CHECK(environment().at("threads") == before);
}

TEST_CASE("the loader alone has a report of its data, and images that a device must still change count when they are") {
  auto config = short_run();
  config.data.options.set("augment_on", ConfigNode("device"));
  const auto report = run_bench(config, quick({"loader"}));
  CHECK(report.model.empty());
  CHECK(report.device == "cpu");
  CHECK(report.data == "generated, 96 samples");
  CHECK(report.row("loader", "as configured")->number("samples_per_s") > 0);
  CHECK(has(report.notes.back(), "the best of these settings: data.batch_size="));
  const auto same = compare_bench_reports(report, report);
  CHECK(same.passed());
}

TEST_CASE("phases share the time of the counted steps among them") {
  const auto report = run_bench(short_run(), quick({"step", "train"}));
  for (const char* name : {"step batch 4", "train batch 8"}) {
    CAPTURE(name);
    const auto* row = report.row("phases", name);
    REQUIRE(row != nullptr);
    CHECK(row->number("steps") == 3);
    double sum = 0;
    for (const auto& [key, value] : row->numbers)
      if (key.starts_with("share_of_")) sum += value;
    CHECK(sum == doctest::Approx(1));
    for (const char* key : {"share_of_transfer", "share_of_forward", "share_of_backward", "share_of_optimizer"})
      CHECK(row->number(key) > 0);
  }
  CHECK(report.row("phases", "train batch 8")->number("share_of_data_wait") > 0);
  auto options = quick({"step", "train"});
  options.phases = false;
  const auto plain = run_bench(short_run(), options);
  CHECK(plain.row("phases") == nullptr);
  CHECK(std::isnan(plain.row("step")->number("moved_bytes")));
}

TEST_CASE("power and energy per sample come from the counters, and a run of power is one of all its steps") {
  TempDir root;
  const auto zone = std::filesystem::path(root.path()) / "sys/class/powercap/intel-rapl:0";
  std::filesystem::create_directories(zone);
  for (const auto& [name, text] :
       {std::pair{"name", "package-0"}, std::pair{"max_energy_range_uj", "262143328850"}, std::pair{"energy_uj", "5"}})
    std::ofstream(zone / name) << text;
  auto options = quick({"step", "infer", "train", "batch"});
  options.host.root = root.path();
  const auto report = run_bench(short_run(), options);
  CHECK(report.row("power") == nullptr);
  for (const char* section : {"step", "infer", "train", "batch"}) {
    CAPTURE(section);
    CHECK(report.row(section)->number("host_power_w") == 0);  // the counter does not change
    CHECK(report.row(section)->number("host_energy_j_per_sample") == 0);
    CHECK(std::isnan(report.row(section)->number("device_power_w")));
  }
  CHECK(has(to_html(report), "Power and energy"));
  CHECK(has(run_bench(short_run(), quick({"batch"})).row("power", "host")->failure, "not readable"));
}

TEST_CASE("scaling: each sweep has its sizes, its exponent and its sentence; a size that cannot be is recorded") {
  auto options = quick({"scaling"});
  options.scaling = {
      .batch = {2, 4}, .depth = {1, 2}, .image = {16, 32, 36, 48}, .threads = {1, 2}, .workers = {1, 2}, .layers = {4, 8}, .steps = 2};
  const auto report = run_bench(short_run(), options);
  const std::pair<const char*, const char*> sweeps[] = {{"scaling batch", "batch 4"},     {"scaling memory", "batch 4"},
                                                        {"scaling depth", "depth 2"},     {"scaling image", "pixels of an image 2304"},
                                                        {"scaling threads", "threads 2"}, {"scaling workers", "workers 2"},
                                                        {"scaling dump", "layers 8"},     {"scaling compare", "layers 8"}};
  for (const auto& [section, name] : sweeps) {
    CAPTURE(section);
    REQUIRE(report.row(section, name) != nullptr);
    CHECK(report.row(section, name)->failure.empty());
    CHECK(report.row(section, name)->numbers.size() == 2);
    CHECK(report.row(section, name)->numbers[1].second > 0);
    REQUIRE(report.row(section, "growth") != nullptr);
    CHECK(std::isfinite(report.row(section, "growth")->number("exponent")));
    CHECK(has(to_html(report), "Scaling: " + report.row(section, name)->numbers[1].first));
  }
  CHECK(has(report.row("scaling image", "pixels of an image 1296")->failure, "patch"));
  // the memory of tensors is exact: one part is fixed, the other grows with the batch
  const double memory = report.row("scaling memory", "growth")->number("exponent");
  CHECK(memory > 0.3);
  CHECK(memory < kLinearGrowth);
  CHECK(report.notes.size() >= 8);
  options.scaling.depth = {0};
  CHECK(has(error_of([&] { run_bench(short_run(), options); }).what(), "at least 1"));
}

TEST_CASE("two equal programs are compared as often as requested") {
  auto options = quick({"null"});
  options.pairs = 6;
  options.null_trials = 2;
  const auto report = run_bench(short_run(), options);
  CHECK(report.row("null", "trial 2")->ratio->pairs == 6);
  CHECK(report.row("null", "two equal programs")->number("trials") == 2);
  double refused = 0;
  for (const char* trial : {"trial 1", "trial 2"})
    refused += report.row("null", trial)->ratio->verdict == SpeedRatio::Verdict::NoDifference ? 1 : 0;
  CHECK(report.row("null", "two equal programs")->number("refused") == refused);
  options.pairs = 5;
  CHECK(has(error_of([&] { run_bench(short_run(), options); }).what(), "at least 6"));
}

TEST_CASE("what cannot be measured is refused before anything runs") {
  CHECK(has(error_of([] { run_bench(short_run(), quick({"invalid"})); }).what(), "allowed: step, train, infer"));
  CHECK(has(error_of([] { run_bench({}, quick({"step"})); }).what(), "no model"));
  auto config = short_run();
  config.data = {};
  CHECK(has(error_of([&] { run_bench(config, quick({"train"})); }).what(), "no data"));
  CHECK(has(error_of([&] { run_bench(config, quick({"loader"})); }).what(), "no data"));
  auto options = quick({"step"});
  options.steps = 0;
  CHECK(error_of([&] { run_bench(short_run(), options); }).kind() == ErrorKind::Usage);
}
