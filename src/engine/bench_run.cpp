#include "npu_train/engine/bench_run.hpp"

#include <algorithm>

#include "bench_step.hpp"
#include "bench_sweeps.hpp"
#include "npu_train/align/environment.hpp"
#include "npu_train/bench/machine_speed.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

using namespace detail;

struct StepTimes final : Callback {
  int64_t warmup = 0, seen = 0;
  double data_wait = 0;
  Samples samples;
  void on_step_end(TrainLoop& /*loop*/, const StepReport& report) override {
    if (seen++ < warmup) return;
    samples.seconds.push_back(report.seconds);
    data_wait += report.data_wait;
  }
};

void train(const Bench& bench, BenchReport& out) {
  check(!bench.config.data.name.empty(), ErrorKind::Usage, "bench", "--what train: no data; give CONFIG or data.name=...");
  auto config = bench_config(bench.config);
  config.trainer.max_steps = bench.options.warmup + bench.options.steps;
  Trainer trainer(config, bench.parts);
  const auto times = std::make_shared<StepTimes>();
  times->warmup = bench.options.warmup;
  trainer.add_callback(times);
  trainer.fit();
  check(times->samples.size() > 0, ErrorKind::Usage, "bench", "the run ended before ", bench.options.warmup + 1, " steps");
  const auto batch = trainer.data().options.batch_size;
  const auto& device = trainer.loop().parts().device;
  const auto& all = times->samples;
  double seconds = 0;
  for (const double s : all.seconds) seconds += s;
  out.rows.push_back({.section = "train",
                      .name = "batch " + std::to_string(batch),
                      .numbers = {{"batch", static_cast<double>(batch)},
                                  {"steps", static_cast<double>(all.size())},
                                  {"img_per_s", static_cast<double>(batch) / all.median()},
                                  {"step_ms_median", 1e3 * all.median()},
                                  {"step_ms_min", 1e3 * all.min()},
                                  {"step_ms_p95", 1e3 * all.percentile(95)},
                                  {"share_of_data_wait", times->data_wait / seconds},
                                  {"peak_memory_bytes", static_cast<double>(backend_of(device).memory(device).peak)}},
                      .samples = all});
}

void step(const Bench& bench, BenchReport& out) {
  BenchStep run(bench.config, bench.parts, bench.options.batch);
  BenchRow row{.section = "step", .name = "batch " + std::to_string(bench.options.batch)};
  const int64_t activations = bench.options.activations ? run.activation_bytes() : -1;
  run.train();
  const double first = since_process_start();
  run.describe(row, measure([&] { run.train(); }, bench.options.steps, bench.options.warmup - 1), out.gemm_flops);
  row.numbers.emplace_back("first_step_s", first);
  if (activations >= 0) row.numbers.emplace_back("activations_bytes", static_cast<double>(activations));
  out.rows.push_back(std::move(row));
}

struct Section {
  const char* name;
  void (*run)(const Bench&, BenchReport&);
};
constexpr Section kSections[] = {{"step", step},
                                 {"train", train},
                                 {"infer", detail::bench_infer},
                                 {"forward", detail::bench_forward},
                                 {"amp", detail::bench_amp},
                                 {"batch", detail::bench_batches},
                                 {"loader", detail::bench_loader},
                                 {"checkpoint", detail::bench_checkpoint},
                                 {"checkpointing", detail::bench_checkpointing},
                                 {"threads", detail::bench_threads}};

void check_options(const RunConfig& config, const BenchOptions& o) {
  check(!o.what.empty(), ErrorKind::Usage, "bench", "nothing to measure; allowed: ", join(bench_sections()));
  for (const auto& name : o.what) {
    const auto& all = bench_sections();
    check(std::find(all.begin(), all.end(), name) != all.end(), ErrorKind::Usage, "bench", "--what ", name, "; allowed: ", join(all));
    check(name == "loader" || !config.model.name.empty(), ErrorKind::Usage, "bench", "no model; give CONFIG or --model NAME");
  }
  check(o.batch >= 1 && o.warmup >= 1 && o.steps >= 1 && o.infer_steps >= 1 && o.sweep_steps >= 1 && o.pairs >= 1, ErrorKind::Usage,
        "bench", "batch, warm-up, steps and pairs must be at least 1");
}

}  // namespace

const std::vector<std::string>& bench_sections() {
  static const auto names = [] {
    std::vector<std::string> out;
    for (const auto& s : kSections) out.emplace_back(s.name);
    return out;
  }();
  return names;
}

BenchReport run_bench(const RunConfig& config, const BenchOptions& options, const Parts& parts) {
  return translated("bench", [&] {
    check_options(config, options);
    const Bench bench{config, options, parts};
    BenchReport out{.model = config.model.name};
    const bool with_model = std::any_of(options.what.begin(), options.what.end(), [](const auto& w) { return w != "loader"; });
    if (with_model) {
      BenchStep run(config, parts, 1);
      out.device = run.device().str();
      out.precision = run.trainer().loop().parts().precision->name();
      out.flops_per_image = run.flops_per_sample();
      for (const auto& p : run.trainer().task().parameters()) out.parameters += p.value.numel();
      if (options.machine) {
        out.gemm_flops = gemm_flops(run.device());
        out.copy_bytes_per_second = copy_bandwidth(run.device());
      }
    }
    out.environment = environment();
    for (const auto& section : kSections)
      if (std::find(options.what.begin(), options.what.end(), section.name) != options.what.end()) section.run(bench, out);
    return out;
  });
}

}  // namespace npu_train
