#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "bench_step.hpp"
#include "bench_sweeps.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/tools/bench/growth.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kMostWarmup = 3;
constexpr int64_t kChainWidth = 32;

bool has_option(const Bench& bench, const std::string& name) {
  const auto fields = bench.parts.models.describe(bench.config.model.name);
  return std::any_of(fields.begin(), fields.end(), [&](const FieldInfo& field) { return field.name == name; });
}

/// Returns the configuration with another model size and random weights, since those of a file fit only one size.
RunConfig resized(const Bench& bench, const char* option, int64_t value) {
  auto config = bench.config;
  if (has_option(bench, "weights")) config.model.options.erase("weights");
  config.model.options.set(option, ConfigNode(value));
  return config;
}

/// One sweep. Sizes are measured in ascending and then in descending order, so that a machine that slows down widens the intervals instead
/// of looking like growth.
class Sweep {
 public:
  /// `key`: name of the size among a row's numbers; `cost_key`: name of the median time in milliseconds.
  Sweep(GrowthSweep what, std::string key, std::string cost_key, BenchReport& out)
      : what_(std::move(what)), key_(std::move(key)), cost_key_(std::move(cost_key)), out_(out) {}

  /// `times` measures half of the repetitions; it is called again in the second pass.
  void add(int64_t size, std::function<Samples()> times) {
    rows_.push_back(
        {.section = what_.section, .name = what_.size + " " + std::to_string(size), .numbers = {{key_, static_cast<double>(size)}}});
    times_.push_back(std::move(times));
  }

  /// Runs the sweep. A size that fails is recorded, and the sweep continues.
  void run() {
    for (size_t i = 0; i < rows_.size(); ++i) measure_once(i);
    for (size_t i = rows_.size(); i-- > 0;) measure_once(i);
    std::vector<GrowthPoint> points;
    for (auto& row : rows_) {
      if (row.failure.empty()) {
        row.numbers.emplace_back(cost_key_, 1e3 * row.samples.median());
        points.push_back(GrowthPoint::of(row.numbers.front().second, row.samples));
      }
      out_.rows.push_back(std::move(row));
    }
    add_growth(what_, points, out_);
  }

 private:
  void measure_once(size_t i) {
    auto& row = rows_[i];
    if (!row.failure.empty()) return;
    try {
      const auto more = times_[i]();
      row.samples.seconds.insert(row.samples.seconds.end(), more.seconds.begin(), more.seconds.end());
    } catch (const Error& e) {
      row.failure = failure_of(e);
      row.samples = {};
    }
  }

  GrowthSweep what_;
  std::string key_, cost_key_;
  BenchReport& out_;
  std::vector<BenchRow> rows_;
  std::vector<std::function<Samples()>> times_;
};

int64_t half_of_steps(const Bench& bench) { return (bench.options.scaling.steps + 1) / 2; }

/// Times training steps of `config`.
Samples timed_steps(const Bench& bench, const RunConfig& config, int64_t batch) {
  BenchStep run(config, bench.parts, batch);
  return measured(
      bench, [&] { run.train(); }, half_of_steps(bench), std::min(bench.options.warmup, kMostWarmup));
}

void memory_by_batch(const Bench& bench, BenchReport& out) {
  std::vector<GrowthPoint> points;
  for (const auto batch : bench.options.scaling.batch) {
    const auto size = static_cast<double>(batch);
    BenchRow row{.section = "scaling memory", .name = "batch " + std::to_string(batch), .numbers = {{"batch", size}}};
    try {
      const auto bytes = static_cast<double>(BenchStep(bench.config, bench.parts, batch).activation_bytes());
      if (bytes > 0) {
        row.numbers.emplace_back("activations_bytes", bytes);
        points.push_back(GrowthPoint::exact(size, bytes));
      } else {
        row.failure = "the device does not report the memory of tensors";
      }
    } catch (const Error& e) {
      row.failure = failure_of(e);
    }
    out.rows.push_back(std::move(row));
  }
  add_growth({.section = "scaling memory", .cost = "memory of forward and backward", .size = "batch"}, points, out);
}

void by_batch(const Bench& bench, BenchReport& out) {
  Sweep time({.section = "scaling batch", .cost = "step time", .size = "batch"}, "batch", "step_ms_median", out);
  for (const auto batch : bench.options.scaling.batch) time.add(batch, [&bench, batch] { return timed_steps(bench, bench.config, batch); });
  time.run();
  memory_by_batch(bench, out);
}

void by_depth(const Bench& bench, BenchReport& out) {
  const bool resnet = bench.config.model.name.starts_with("resnet");
  if (!resnet && !has_option(bench, "depth")) {
    out.notes.push_back("scaling: step time by depth was not measured, " + bench.config.model.name + " has no option 'depth'");
    return;
  }
  auto sizes = bench.options.scaling.depth;
  if (sizes.empty()) sizes = resnet ? std::vector<int64_t>{18, 34} : std::vector<int64_t>{2, 4, 8, 12};
  Sweep sweep({.section = "scaling depth", .cost = "step time", .size = "depth"}, "depth", "step_ms_median", out);
  for (const auto depth : sizes)
    sweep.add(depth, [&bench, resnet, depth] {
      auto config = resnet ? bench.config : resized(bench, "depth", depth);
      if (resnet) {
        config.model.options.erase("weights");
        config.model.name = "resnet" + std::to_string(depth);
      }
      return timed_steps(bench, config, bench.options.scaling.batch.front());
    });
  sweep.run();
}

void by_image(const Bench& bench, BenchReport& out) {
  if (!has_option(bench, "image_size")) {
    out.notes.push_back("scaling: step time by image size was not measured, " + bench.config.model.name + " has no option 'image_size'");
    return;
  }
  auto sizes = bench.options.scaling.image;
  if (sizes.empty()) {
    const auto own = BenchStep(bench.config, bench.parts, 1).input().size(-1);
    for (const auto side : {own / 2, own, 2 * own})
      if (side > 0) sizes.push_back(side);
  }
  const bool attention = bench.config.model.name.starts_with("vit");
  Sweep sweep({.section = "scaling image",
               .cost = "step time",
               .size = "pixels of an image",
               .reason = attention ? "attention compares every patch with every other, which grows with the square of their number" : ""},
              "pixels", "step_ms_median", out);
  for (const auto side : sizes)
    sweep.add(side * side,
              [&bench, side] { return timed_steps(bench, resized(bench, "image_size", side), bench.options.scaling.batch.front()); });
  sweep.run();
}

void by_threads(const Bench& bench, BenchReport& out) {
  if (!Device::parse(out.device).is_cpu()) {
    out.notes.push_back("scaling: step time by threads was not measured, the device is not a CPU");
    return;
  }
  auto sizes = bench.options.scaling.threads;
  if (sizes.empty()) sizes = doubled_up_to(at::get_num_threads());
  Sweep sweep({.section = "scaling threads", .cost = "step time", .size = "threads", .shared = true}, "threads", "step_ms_median", out);
  for (const auto threads : sizes)
    sweep.add(threads, [&bench, threads] {
      auto config = bench.config;
      config.trainer.threads = threads;
      return timed_steps(bench, config, bench.options.scaling.batch.front());
    });
  sweep.run();
}

void by_workers(const Bench& bench, BenchReport& out) {
  if (bench.config.data.name.empty()) {
    out.notes.push_back("scaling: the loader by workers was not measured because there are no data; give CONFIG or data.name=...");
    return;
  }
  auto sizes = bench.options.scaling.workers;
  if (sizes.empty()) sizes = doubled_up_to(std::max(1U, std::thread::hardware_concurrency()));
  Sweep sweep({.section = "scaling workers", .cost = "time of an epoch", .size = "workers", .shared = true}, "workers", "epoch_ms_median",
              out);
  for (const auto workers : sizes)
    sweep.add(workers, [&bench, workers] {
      auto seen = loader_row(bench, 0, workers);
      check(seen.failure.empty(), ErrorKind::Usage, "bench", seen.failure);
      return std::move(seen.samples);
    });
  sweep.run();
}

/// A chain of linear layers, whose computation is negligible compared with the dump.
class Chain {
 public:
  explicit Chain(int64_t layers) {
    for (int64_t i = 0; i < layers; ++i) {
      at::Tensor weight = at::randn({kChainWidth, kChainWidth}) * 0.1;
      model_.parameters.add({.name = "layer" + std::to_string(i) + ".weight", .value = weight.requires_grad_()});
    }
  }
  /// Times `steps` dumped steps.
  Samples dump(const std::string& dir, int64_t steps) const {
    Dumper dumper({.dir = dir}, model_);
    const at::Tensor x = at::ones({4, kChainWidth});
    return measure(
        [&] {
          dumper.start();
          at::Tensor y = x;
          for (const auto& p : model_.parameters) y = at::linear(y, p.value).relu();
          const at::Tensor loss = y.sum();
          dumper.loss(loss);
          model_.parameters.zero_grad();
          loss.backward();
          dumper.stop();
          dumper.step();
        },
        steps, /*warmup=*/1);
  }

 private:
  DumpedModel model_;
};

void by_layers(const Bench& bench, BenchReport& out) {
  const auto steps = half_of_steps(bench);
  const ScratchFolder folder("bench");
  const auto dir = [&](const char* name, int64_t layers) { return (folder.path / (name + std::to_string(layers))).string(); };
  Sweep dumps({.section = "scaling dump", .cost = "time of a dumped step", .size = "layers"}, "layers", "dump_ms_median", out);
  for (const auto layers : bench.options.scaling.layers)
    dumps.add(layers, [&, layers] {  // each pass writes a dump; the two are compared below
      const bool first = !std::filesystem::exists(dir("a", layers));
      return Chain(layers).dump(dir(first ? "a" : "b", layers), steps);
    });
  dumps.run();
  Sweep compared({.section = "scaling compare", .cost = "time of a comparison", .size = "layers"}, "layers", "compare_ms_median", out);
  for (const auto layers : bench.options.scaling.layers)
    compared.add(layers, [&, layers] {
      return measured(
          bench, [&] { compare_dumps(dir("a", layers), dir("b", layers), {.steps = {0}}); }, steps, 1);
    });
  compared.run();
}

}  // namespace

void bench_scaling(const Bench& bench, BenchReport& out) {
  for (const auto sweep : {by_batch, by_depth, by_image, by_threads, by_workers, by_layers}) sweep(bench, out);
}

void bench_null(const Bench& bench, BenchReport& out) {
  const auto trials = bench.options.null_trials;
  int64_t verdicts = 0;
  for (int64_t i = 0; i < trials; ++i) {
    BenchStep one(bench.config, bench.parts, bench.options.batch), other(bench.config, bench.parts, bench.options.batch);
    const auto times = measured_in_turn(
        bench, [&] { one.train(); }, [&] { other.train(); }, bench.options.pairs, std::min(bench.options.warmup, kMostWarmup));
    const auto ratio = times.ratio();
    if (ratio.verdict != SpeedRatio::Verdict::NoDifference) ++verdicts;
    out.rows.push_back({.section = "null", .name = "trial " + std::to_string(i + 1), .ratio = ratio});
  }
  out.rows.push_back({.section = "null",
                      .name = "two equal programs",
                      .numbers = {{"trials", static_cast<double>(trials)}, {"refused", static_cast<double>(trials - verdicts)}}});
  out.notes.push_back("null: two equal programs correctly had no verdict in " + std::to_string(trials - verdicts) + " of " +
                      std::to_string(trials) + " trials; at least 18 of 20 are expected");
}

}  // namespace npu_train::detail
