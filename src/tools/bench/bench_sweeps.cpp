#include "bench_sweeps.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include <ATen/Parallel.h>

#include "bench_step.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/live_bytes.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

constexpr double kKnee = 0.95;  // share of the best throughput at the knee; larger batches gain little beyond it

/// The first losses of a configuration, and the memory of its predictions and steps while it is alone on the device.
struct Side {
  double loss = 0, validation_loss = 0;
  double bytes = 0, predict_bytes = 0;

  Side(const Bench& bench, const RunConfig& config) {
    BenchStep run(config, bench.parts, bench.options.batch);
    validation_loss = run.validation_loss();
    predict_bytes = static_cast<double>(peak_bytes_of(run.device(), [&] { run.predict(); }));
    loss = run.loss();
    const auto& backend = backend_of(run.device());
    backend.reset_peak(run.device());
    run.train();
    // On the CPU, the resident set would cover both sides.
    bytes = static_cast<double>(run.device().is_cpu() ? run.activation_bytes() : backend.memory(run.device()).peak);
  }
};

/// Adds the losses of both precisions, and the bytes if the device reports them.
void add_sides(BenchRow& row, double low_loss, double full_loss, const std::string& what, double low_bytes, double full_bytes) {
  row.numbers.insert(row.numbers.end(),
                     {{"loss", low_loss}, {"loss_32_true", full_loss}, {"loss_difference", std::abs(low_loss - full_loss)}});
  if (low_bytes <= 0 || full_bytes <= 0) return;
  row.numbers.emplace_back(what + "_bytes", low_bytes);
  row.numbers.emplace_back(what + "_32_true_bytes", full_bytes);
}

}  // namespace

std::vector<int64_t> doubled_up_to(int64_t most) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n < most; n *= 2) out.push_back(n);
  out.push_back(most);
  return out;
}

Samples measured(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup) {
  return measure([&] { bench.go_on(), fn(); }, count, warmup);
}

PairedSamples measured_in_turn(const Bench& bench, const std::function<void()>& one, const std::function<void()>& other, int64_t pairs,
                               int64_t warmup) {
  return measure_alternately([&] { bench.go_on(), one(); }, [&] { bench.go_on(), other(); }, pairs, warmup);
}

std::string failure_of(const Error& error) { return error.kind() == ErrorKind::OutOfMemory ? "out of memory" : without_hint(error.what()); }

Samples measure_with_energy(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup, EnergyReading& energy) {
  measured(bench, fn, warmup, 0);
  bench.power.start();
  auto out = measured(bench, fn, count, 0);
  energy = bench.power.stop();
  return out;
}

void add_energy(BenchRow& row, const EnergyReading& energy, double samples) {
  for (const auto& [of, joules] : {std::pair{"host", energy.host_joules}, std::pair{"device", energy.device_joules}}) {
    if (!joules) continue;
    row.numbers.emplace_back(std::string(of) + "_power_w", *joules / energy.seconds);
    row.numbers.emplace_back(std::string(of) + "_energy_j_per_sample", *joules / samples);
  }
}

void bench_amp(const Bench& bench, BenchReport& out) {
  auto full = bench.config, low = bench.config;
  full.precision = "32-true";
  low.precision = out.precision == "32-true" ? "bf16-mixed" : out.precision;
  const Side low_alone(bench, low), full_alone(bench, full);  // both have equal weights and batches
  BenchStep one(low, bench.parts, bench.options.batch), other(full, bench.parts, bench.options.batch);
  const auto name = low.precision + " beside 32-true";
  const auto train = measured_in_turn(
      bench, [&] { one.train(); }, [&] { other.train(); }, bench.options.pairs);
  BenchRow row{.section = "amp", .name = "train " + name, .samples = train.one, .ratio = train.ratio()};
  row.numbers = {{"step_ms_median", 1e3 * train.one.median()}, {"step_ms_median_32_true", 1e3 * train.other.median()}};
  add_sides(row, low_alone.loss, full_alone.loss, one.device().is_cpu() ? "activations" : "memory", low_alone.bytes, full_alone.bytes);
  out.rows.push_back(std::move(row));
  const auto infer = measured_in_turn(
      bench, [&] { one.predict(); }, [&] { other.predict(); }, bench.options.pairs);
  BenchRow predictions{.section = "amp", .name = "infer " + name, .samples = infer.one, .ratio = infer.ratio()};
  predictions.numbers = {{"latency_ms_p50", 1e3 * infer.one.median()}, {"latency_ms_p50_32_true", 1e3 * infer.other.median()}};
  add_sides(predictions, low_alone.validation_loss, full_alone.validation_loss, "activations", low_alone.predict_bytes,
            full_alone.predict_bytes);
  out.rows.push_back(std::move(predictions));
}

void bench_batches(const Bench& bench, BenchReport& out) {
  double best = 0;
  std::vector<std::pair<int64_t, double>> speeds;
  for (int64_t batch = 1; batch <= kLargestSweep; batch *= 2) {
    BenchRow row{.section = "batch", .name = "batch " + std::to_string(batch)};
    try {
      BenchStep run(bench.config, bench.parts, batch);
      EnergyReading energy;
      const auto times = measure_with_energy(
          bench, [&] { run.train(); }, bench.options.sweep_steps, bench.options.warmup, energy);
      run.describe(row, times, out.gemm_flops);
      add_energy(row, energy, static_cast<double>(batch * bench.options.sweep_steps));
      // The resident set shows no increase if an earlier size or section needed as much.
      if (const auto bytes = run.device().is_cpu() ? run.activation_bytes() : -1; bytes > 0)
        row.numbers.emplace_back("activations_bytes", static_cast<double>(bytes));
      speeds.emplace_back(batch, row.number("samples_per_s"));
      best = std::max(best, speeds.back().second);
    } catch (const Error& e) {
      if (batch == kLargestSweep && speeds.empty()) throw;
      row.numbers = {{"batch", static_cast<double>(batch)}};
      row.failure = failure_of(e);
    }
    out.rows.push_back(std::move(row));
  }
  for (const auto& [batch, speed] : speeds)
    if (speed >= kKnee * best) {
      out.notes.push_back("batch: the knee is at " + std::to_string(batch) + ", from which on throughput is within 5 % of the best (" +
                          short_number(best, 3) + " samples/s)");
      break;
    }
}

void bench_checkpointing(const Bench& bench, BenchReport& out) {
  auto off = bench.config, on = bench.config;
  off.trainer.gradient_checkpointing = "none";
  on.trainer.gradient_checkpointing = "blocks";
  BenchStep one(on, bench.parts, bench.options.batch), other(off, bench.parts, bench.options.batch);
  const auto with = one.activation_bytes(), without = other.activation_bytes();
  const auto pairs = measured_in_turn(
      bench, [&] { one.train(); }, [&] { other.train(); }, bench.options.pairs);
  BenchRow row{.section = "checkpointing", .name = "blocks beside none", .samples = pairs.one, .ratio = pairs.ratio()};
  if (with > 0 && without > 0)
    row.numbers = {{"activations_bytes", static_cast<double>(with)}, {"activations_none_bytes", static_cast<double>(without)}};
  row.numbers.emplace_back("step_ms_median", 1e3 * pairs.one.median());
  row.numbers.emplace_back("step_ms_median_none", 1e3 * pairs.other.median());
  out.rows.push_back(std::move(row));
}

void bench_threads(const Bench& bench, BenchReport& out) {
  if (!Device::parse(out.device).is_cpu()) {
    out.notes.push_back("threads: not measured, the device is not a CPU");
    return;
  }
  for (const int64_t threads : doubled_up_to(at::get_num_threads())) {
    auto config = bench.config;
    config.trainer.threads = threads;
    BenchStep run(config, bench.parts, bench.options.batch);
    BenchRow row{.section = "threads", .name = std::to_string(threads) + (threads == 1 ? " thread" : " threads")};
    row.numbers = {{"threads", static_cast<double>(threads)}};
    run.describe(row,
                 measured(
                     bench, [&] { run.train(); }, bench.options.sweep_steps, bench.options.warmup),
                 0);
    out.rows.push_back(std::move(row));
  }
}

double since_process_start() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
  const auto name_end = text.rfind(')');
  std::string up_text;
  uptime >> up_text;
  const auto up = decimal_number(up_text);
  if (name_end == std::string::npos || !up) return 0;
  std::istringstream rest(text.substr(name_end + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;
  return *up - decimal_number(field).value_or(0) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace npu_train::detail
