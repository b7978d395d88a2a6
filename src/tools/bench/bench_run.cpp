#include "npu_train/tools/bench/bench_run.hpp"

#include <algorithm>
#include <optional>

#include "bench_step.hpp"
#include "bench_sweeps.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/sample_choice.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/host_arena.hpp"
#include "npu_train/device/product_speed.hpp"
#include "npu_train/device/threads.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/tools/bench/machine_speed.hpp"
#include "npu_train/tools/doctor/environment_matrix.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

using namespace detail;

constexpr int64_t kPhaseSteps = 10;  // phases are recorded in separate steps, so as not to disturb the measurement

/// Times `steps` windows after `warmup`. Later windows are for `profiler`, if any.
struct StepTimes final : Callback {
  explicit StepTimes(const Bench& run) : bench(run), warmup(run.options.warmup), steps(run.options.steps) {}
  void on_step_end(TrainLoop& loop, const StepReport& report) override {
    if (bench.is_stopped()) loop.request_stop();
    const auto index = seen++;
    if (index + 1 == warmup) bench.power.start();
    if (index < warmup || index >= warmup + steps) return;
    samples.seconds.push_back(report.seconds);
    data_wait += report.data_wait;
    images += static_cast<double>(report.samples);
    if (index + 1 == warmup + steps) end(loop);
  }
  void on_fit_end(TrainLoop& loop, const RunResult& /*result*/) override {
    if (!ended && seen >= warmup) end(loop);  // a run with fewer steps
  }
  void end(TrainLoop& loop) {
    ended = true;
    energy = bench.power.stop();
    const auto& device = loop.parts().device;
    peak = backend_of(device).memory(device).peak;
    if (profiler != nullptr) loop.observers().add(profiler);
  }
  const Bench& bench;
  int64_t warmup, steps, seen = 0, peak = -1;
  bool ended = false;
  double data_wait = 0, images = 0;
  Samples samples;
  EnergyReading energy;
  StepObserver* profiler = nullptr;
};

void train(const Bench& bench, BenchReport& out) {
  auto config = bench_config(bench.config);
  const auto counted = bench.options.warmup + bench.options.steps;
  const auto device = run_device(config);
  const auto& backend = backend_of(device);
  // A profiler waits after each phase on a device with streams, so it gets separate steps.
  const bool apart = backend.capabilities(device).streams;
  config.trainer.max_steps = counted + (apart && bench.options.phases ? std::min(kPhaseSteps, bench.options.steps) + 2 : 0);
  const auto before = backend.memory(device).allocated;
  backend.reset_peak(device);
  std::optional<LateProfiler> profiler;  // outlives the trainer that it observes
  Trainer trainer(config, bench.parts);
  trainer.setup();
  profiler.emplace(device, *trainer.loop().parts().parameters, apart ? counted : bench.options.warmup - 1);
  const auto times = std::make_shared<StepTimes>(bench);
  if (bench.options.phases) {
    if (apart)
      times->profiler = &*profiler;
    else
      trainer.add_observer(&*profiler);
  }
  trainer.add_callback(times);
  trainer.fit();
  bench.go_on();
  check(times->samples.size() > 0, ErrorKind::Usage, "bench", "the run ended before ", bench.options.warmup + 1, " steps");
  const auto batch = trainer.data().options.batch_size;
  const auto& all = times->samples;
  double seconds = 0;
  for (const double s : all.seconds) seconds += s;
  BenchRow row{.section = "train",
               .name = "batch " + std::to_string(batch),
               .numbers = {{"batch", static_cast<double>(batch)},
                           {"steps", static_cast<double>(all.size())},
                           {"samples_per_s", static_cast<double>(batch) / all.median()},
                           {"step_ms_median", 1e3 * all.median()},
                           {"step_ms_min", 1e3 * all.min()},
                           {"step_ms_p95", 1e3 * all.percentile(95)},
                           {"share_of_data_wait", times->data_wait / seconds}},
               .samples = all};
  add_memory_numbers(row, before, times->peak);
  add_energy(row, times->energy, times->images);
  out.rows.push_back(std::move(row));
  if (bench.options.phases) out.rows.push_back(phase_row("train batch " + std::to_string(batch), profiler->profile()));
}

void step(const Bench& bench, BenchReport& out) {
  BenchStep run(bench.config, bench.parts, bench.options.batch);
  BenchRow row{.section = "step", .name = "batch " + std::to_string(bench.options.batch)};
  const int64_t activations = bench.options.activations ? run.activation_bytes() : -1;
  run.train();
  const double first = since_process_start();
  EnergyReading energy;
  const auto times = measure_with_energy(
      bench, [&] { run.train(); }, bench.options.steps, bench.options.warmup - 1, energy);
  run.describe(row, times, out.gemm_flops);
  if (bench.options.phases) {
    const auto moved = static_cast<double>(run.bytes_moved());
    row.numbers.emplace_back("moved_bytes", moved);
    if (out.copy_bytes_per_second > 0) row.numbers.emplace_back("share_of_copy", moved / times.min() / out.copy_bytes_per_second);
  }
  add_energy(row, energy, static_cast<double>(bench.options.batch * bench.options.steps));
  row.numbers.emplace_back("first_step_s", first);
  if (activations >= 0) row.numbers.emplace_back("activations_bytes", static_cast<double>(activations));
  out.rows.push_back(std::move(row));
  if (bench.options.phases) out.rows.push_back(run.phases("step " + out.rows.back().name, std::min(kPhaseSteps, bench.options.steps)));
}

/// Adds rows that explain why power figures are missing.
void tell_power(const Bench& bench, BenchReport& out) {
  const auto measured = [](const BenchRow& r) {
    return r.section == "step" || r.section == "train" || r.section == "infer" || r.section == "batch" || r.section == "infer-batch";
  };
  if (std::none_of(out.rows.begin(), out.rows.end(), measured)) return;
  for (const auto& [name, why] : {std::pair{"host", bench.power.host_why()}, std::pair{"device", bench.power.device_why()}})
    if (!why.empty()) out.rows.push_back({.section = "power", .name = name, .failure = "not readable: " + why});
}

struct Section {
  const char* name;
  void (*run)(const Bench&, BenchReport&);
};
constexpr Section kSections[] = {{"step", step},
                                 {"train", train},
                                 {"infer", detail::bench_infer},
                                 {"infer-batch", detail::bench_infer_batches},
                                 {"forward", detail::bench_forward},
                                 {"amp", detail::bench_amp},
                                 {"batch", detail::bench_batches},
                                 {"loader", detail::bench_loader},
                                 {"checkpoint", detail::bench_checkpoint},
                                 {"checkpointing", detail::bench_checkpointing},
                                 {"threads", detail::bench_threads},
                                 {"scaling", detail::bench_scaling},
                                 {"dist", detail::bench_dist},
                                 {"stages", detail::bench_stages},
                                 {"null", detail::bench_null}};

void check_options(const RunConfig& config, const BenchOptions& o) {
  check(!o.what.empty(), ErrorKind::Usage, "bench", "nothing to measure; allowed: ", join(bench_sections()));
  for (const auto& name : o.what) {
    const auto& all = bench_sections();
    check(std::find(all.begin(), all.end(), name) != all.end(), ErrorKind::Usage, "bench", "--what ", name, "; allowed: ", join(all));
    check(name != "null" || o.pairs >= 6, ErrorKind::Usage, "bench",
          "--what null needs --pairs of at least 6; fewer pairs give no verdict");
    check(name != "scaling" || !o.scaling.batch.empty(), ErrorKind::Usage, "bench", "--what scaling needs batch sizes");
    check(name == "loader" || !config.model.name.empty(), ErrorKind::Usage, "bench", "no model; give CONFIG or --model NAME");
    check((name != "loader" && name != "train" && name != "stages") || !config.data.name.empty(), ErrorKind::Usage, "bench", "--what ",
          name, ": no data; give CONFIG or data.name=...");
  }
  for (const auto* sizes :
       {&o.scaling.batch, &o.scaling.depth, &o.scaling.image, &o.scaling.threads, &o.scaling.workers, &o.scaling.layers})
    for (const auto size : *sizes) check(size >= 1, ErrorKind::Usage, "bench", "a size is ", size, "; sizes of scaling must be at least 1");
  check(o.scaling.steps >= 1 && o.null_trials >= 1, ErrorKind::Usage, "bench", "the steps of scaling and the trials must be at least 1");
  check(o.batch >= 1 && o.warmup >= 1 && o.steps >= 1 && o.infer_steps >= 1 && o.sweep_steps >= 1 && o.pairs >= 1, ErrorKind::Usage,
        "bench", "batch, warm-up, steps and pairs must be at least 1");
}

/// Returns the configuration with the model that a training would use: the data determine the image size and the number of classes.
/// `samples`: number of samples, -1 if unknown. The data are opened only for sections that read them.
RunConfig with_data_of(const RunConfig& config, const std::vector<std::string>& what, const Parts& parts, BenchReport& out,
                       int64_t& samples) {
  auto full = config;
  if (config.data.name.empty()) return full;
  try {
    const bool reads = std::any_of(what.begin(), what.end(),
                                   [](const auto& w) { return w == "train" || w == "loader" || w == "scaling" || w == "stages"; });
    const auto data = (reads ? parts : shapes_only(parts, config)).datasets.make(config.data, "data", parts.transforms);
    const bool counted = reads || (config.data.name != "image_folder" && config.data.name != "webdataset");
    if (counted && data.train != nullptr) {
      const auto subset = static_cast<int64_t>(detail::sample_choice(data).subset.size());
      samples = subset > 0 ? subset : data.train->size();
    }
    out.data = config.data.name + (samples < 0 ? "" : ", " + with_commas(samples) + " samples");
    if (!config.model.name.empty()) full.model = with_data_defaults(config.model, data.info(), data.options.image_size, parts);
  } catch (const Error& e) {
    out.data = config.data.name + ", which could not be opened";
    out.notes.push_back("data: " + without_hint(e.what()) +
                        "; sections that read no data use the model's own image size and number of classes");
  }
  return full;
}

/// Describes the model, its size and the machine's speed.
void describe(const Bench& bench, BenchReport& out) {
  out.model = bench.config.model.name;
  BenchStep run(bench.config, bench.parts, 1);
  out.precision = run.trainer().loop().parts().precision->name();
  const auto& model = run.trainer().model();
  std::vector<std::string> sizes;
  if (model.num_classes > 0) {
    const auto input = run.input();
    for (const auto size : input.sizes().slice(1)) sizes.push_back(std::to_string(size));
    out.input = join(sizes, "x") + ", " + std::to_string(model.num_classes) + " classes";
  } else {
    for (const auto& input : model.inputs) sizes.push_back(input.str());
    out.input = join(sizes);
  }
  out.flops_per_image = run.flops_per_sample();
  out.parameters = run.trainer().loop().parts().parameters->numel();
  check(!bench.options.fuse || out.precision == "32-true", ErrorKind::Usage, "bench",
        "--fuse supports only precision 32-true; given: ", out.precision);
  if (!bench.options.machine) return;
  out.gemm_flops = gemm_flops(run.device());
  out.copy_bytes_per_second = copy_bandwidth(run.device());
}

/// Runs the requested sections. A section that fails is reported as a row, unless it is the only one or nothing was measured before it.
void run_sections(const Bench& bench, BenchReport& out) {
  const auto& what = bench.options.what;
  for (const auto& section : kSections) {
    if (std::find(what.begin(), what.end(), section.name) == what.end()) continue;
    try {
      bench.go_on();
      section.run(bench, out);
    } catch (const Bench::Interrupted&) {
      out.notes.push_back(std::string("interrupted in section ") + section.name +
                          "; this section is incomplete, and later ones are missing");
      return;
    } catch (const Error& e) {
      if (out.rows.empty()) throw;
      out.rows.push_back({.section = section.name, .name = "failed", .failure = failure_of(e)});
      if (out.exit_code == 0) out.exit_code = e.exit_code();
    }
  }
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
    BenchReport out{.device = run_device(config).str(), .precision = config.precision};
    const ThreadCount threads(static_cast<int>(config.trainer.threads));  // also for measurements outside of a trainer
    PowerMeter power(options.host, run_device(config));
    int64_t samples = -1;
    const auto full = with_data_of(config, options.what, parts, out, samples);
    const Bench bench{full, options, parts, power, samples};
    if (std::any_of(options.what.begin(), options.what.end(), [](const auto& w) { return w != "loader"; })) describe(bench, out);
    out.environment = environment();
    out.environment["allocator"] = host_allocator();
    const auto device = run_device(config);
    const auto card = card_facts(options.host, device.kind, device.index);
    if (!card.name.empty()) out.environment["card"] = card.name;
    if (!card.cann.empty()) out.environment["cann"] = card.cann;
    run_sections(bench, out);
    tell_power(bench, out);
    return out;
  });
}

}  // namespace npu_train
