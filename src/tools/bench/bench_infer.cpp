#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "bench_step.hpp"
#include "bench_sweeps.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/nn/fuse.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

void add_latencies(BenchRow& row, const Samples& times, int64_t batch) {
  row.numbers.insert(row.numbers.end(), {{"samples_per_s", static_cast<double>(batch) / times.median()},
                                         {"latency_ms_p50", 1e3 * times.percentile(50)},
                                         {"latency_ms_p95", 1e3 * times.percentile(95)},
                                         {"latency_ms_p99", 1e3 * times.percentile(99)},
                                         {"latency_ms_min", 1e3 * times.min()}});
  row.samples = times;
}

// Measures the same model plain and fused, interleaved.
void infer_fused(const Bench& bench, int64_t batch, BenchReport& out) {
  BenchStep plain(bench.config, bench.parts, batch), other(bench.config, bench.parts, batch);
  const at::Tensor x = other.input();
  const auto fused = fuse(other.trainer().model(), {.min_saving = 0, .example = x});
  const auto before = plain.trainer().model();
  before.module->eval();
  const auto& backend = backend_of(other.device());
  const auto run = [&](const Model& model) {
    return [&] {
      model.forward(x);
      backend.synchronize(other.device());
    };
  };
  const at::NoGradGuard no_grad;
  const auto times = measured_in_turn(bench, run(fused.model), run(before), bench.options.infer_steps, bench.options.warmup);
  BenchRow row{.section = "infer", .name = "batch " + std::to_string(batch) + " fused", .ratio = times.ratio()};
  add_latencies(row, times.one, batch);
  row.numbers.insert(row.numbers.end(), {{"patterns", static_cast<double>(fused.report.patterns.size())},
                                         {"patterns_kept", static_cast<double>(fused.report.kept())},
                                         {"error", fused.report.error}});
  out.rows.push_back(std::move(row));
}

}  // namespace

void bench_infer(const Bench& bench, BenchReport& out) {
  for (const int64_t batch : {int64_t{1}, bench.options.batch}) {
    {
      BenchStep run(bench.config, bench.parts, batch);
      BenchRow row{.section = "infer", .name = "batch " + std::to_string(batch)};
      EnergyReading energy;
      const auto times = measure_with_energy(
          bench, [&] { run.predict(); }, bench.options.infer_steps, bench.options.warmup, energy);
      add_latencies(row, times, batch);
      run.add_memory(row);
      add_energy(row, energy, static_cast<double>(batch * bench.options.infer_steps));
      out.rows.push_back(std::move(row));
    }
    if (bench.options.fuse) infer_fused(bench, batch, out);
    if (batch == bench.options.batch) break;  // batch 1 was requested; it is not measured twice
  }
}

void bench_infer_batches(const Bench& bench, BenchReport& out) {
  bool any = false;
  for (int64_t batch = 1; batch <= kLargestSweep; batch *= 2) {
    BenchRow row{.section = "infer-batch", .name = "batch " + std::to_string(batch)};
    row.numbers = {{"batch", static_cast<double>(batch)}};
    try {
      BenchStep run(bench.config, bench.parts, batch);
      EnergyReading energy;
      const auto times = measure_with_energy(
          bench, [&] { run.predict(); }, bench.options.sweep_steps, bench.options.warmup, energy);
      add_latencies(row, times, batch);
      run.add_memory(row);
      add_energy(row, energy, static_cast<double>(batch * bench.options.sweep_steps));
      any = true;
    } catch (const Error& e) {
      if (batch == kLargestSweep && !any) throw;
      row.failure = failure_of(e);
    }
    out.rows.push_back(std::move(row));
  }
}

void bench_forward(const Bench& bench, BenchReport& out) {
  if (Device::parse(out.device).is_cpu()) {
    out.notes.push_back("forward: the device is the CPU itself, so there is nothing to compare it with");
    return;
  }
  auto host = bench.config;
  host.device = "cpu";
  BenchStep here(bench.config, bench.parts, bench.options.batch), cpu(host, bench.parts, bench.options.batch);
  const auto pairs = measured_in_turn(
      bench, [&] { here.predict(); }, [&] { cpu.predict(); }, bench.options.pairs);
  out.rows.push_back({.section = "forward", .name = out.device + " beside cpu", .samples = pairs.one, .ratio = pairs.ratio()});
}

void bench_checkpoint(const Bench& bench, BenchReport& out) {
  auto config = bench.config;
  config.checkpoint.async = true;
  BenchStep run(config, bench.parts, bench.options.batch);
  auto& loop = run.trainer().loop();
  for (int i = 0; i < 2; ++i) run.train();  // allocates the optimizer's state
  const ScratchFolder folder("bench");
  CheckpointStore store((folder.path / "checkpoints").string(), {.save_top_k = 0});
  loop.set_store(&store);
  const SteadyClock clock;
  Samples beside, waited;
  double first = 0;
  for (int64_t i = 0; i <= bench.options.pairs; ++i) {
    bench.go_on();
    auto start = clock.now();
    loop.begin_checkpoint();
    const double took = clock.now() - start;
    if (i == 0)
      first = took;  // the first copy allocates memory, so it is reported separately
    else
      beside.seconds.push_back(took);
    store.finish();
    start = clock.now();
    loop.save_checkpoint();
    if (i > 0) waited.seconds.push_back(clock.now() - start);
  }
  loop.set_store(nullptr);
  int64_t bytes = 0;
  for (const auto& [part, content] : loop.state())
    for (const auto& [name, tensor] : content.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  out.rows.push_back({.section = "checkpoint",
                      .name = "written beside the training",
                      .numbers = {{"wait_ms_median", 1e3 * beside.median()},
                                  {"wait_ms_min", 1e3 * beside.min()},
                                  {"first_wait_ms", 1e3 * first},
                                  {"write_ms_median", 1e3 * waited.median()},
                                  {"bytes", static_cast<double>(bytes)}},
                      .samples = beside});
}

}  // namespace npu_train::detail
