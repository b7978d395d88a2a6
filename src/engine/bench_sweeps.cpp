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
#include "model_precision.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/without_hint.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/report/number.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

constexpr double kKnee = 0.95;     // of the best throughput: larger batches gain little
constexpr double kLoaderTime = 1;  // seconds that a loader is measured at least
constexpr int64_t kLargestSweep = 64;

struct LoaderSize {
  int64_t batch, workers;  // 0: as the configuration has it
};
constexpr LoaderSize kLoaderSizes[] = {{0, 0}, {64, 2}, {128, 4}, {256, 8}, {512, 16}};

int64_t peak_of(BenchStep& run) {
  const auto& backend = backend_of(run.device());
  if (run.device().is_cpu()) return run.activation_bytes();  // the process holds both sides
  backend.reset_peak(run.device());
  run.train();
  return backend.memory(run.device()).peak;
}

/// Samples that the data has; -1: not known.
int64_t samples_of(const Bench& bench) {
  const auto data = bench.parts.datasets.make(bench.config.data, "data");
  return data.train != nullptr ? data.train->size() : -1;
}

/// Pictures per second over whole epochs; the first does not count: files into the page cache, workers started. `use` gets every batch,
/// `done` ends an epoch.
double epoch_speed(Loader& loader, BenchRow& row, const std::function<void(const Batch&)>& use, const std::function<void()>& done) {
  const SteadyClock clock;
  int64_t images = 0;
  double seconds = 0;
  for (int64_t epoch = 0; epoch < 2 || seconds < kLoaderTime; ++epoch) {
    if (epoch == 1) images = 0, seconds = 0;
    const auto start = clock.now();
    loader.begin_epoch(epoch);
    while (const auto next = loader.next()) {
      images += next->size;
      use(*next);
    }
    done();
    seconds += clock.now() - start;
    check(images > 0, ErrorKind::Data, "bench", "the data gave no batch");
    if (epoch > 0) row.samples.seconds.push_back(clock.now() - start);
  }
  return static_cast<double>(images) / seconds;
}

/// Pictures per second that reach the device ready to train on, changed there, and beside it changed on the host.
void add_device_augmentation(const Bench& bench, BenchReport& out) {
  BenchRow row{.section = "loader", .name = "device augmentation"};
  const auto device = run_device(bench.config);
  const auto& backend = backend_of(device);
  const auto speed = [&](const char* where, BenchRow& into) {
    auto part = bench.config.data;
    part.options.set("augment_on", ConfigNode(where));
    const auto data = bench.parts.datasets.make(part, "data");
    LoaderOptions runtime{.seed = static_cast<uint64_t>(bench.config.seed)};
    if (backend.capabilities(device).pinned_memory) runtime.finish = [](Batch batch) { return pin(batch); };
    auto loader = train_loader(data, runtime);
    into.numbers = {{"batch", static_cast<double>(loader.options().batch_size)},
                    {"workers", static_cast<double>(loader.options().num_workers)}};
    return epoch_speed(
        loader, into, [&](const Batch& batch) { to_device(batch, device); }, [&] { backend.synchronize(device); });
  };
  try {
    BenchRow host;
    const double on_host = speed("host", host), on_device = speed("device", row);
    row.numbers.emplace_back("img_per_s", on_device);
    row.numbers.emplace_back("img_per_s_host", on_host);
    out.notes.push_back("loader: device augmentation on " + device.str() + " gives " + short_number(on_device / on_host, 2) +
                        " times the pictures of the host's, copies to the device counted on both sides");
  } catch (const Error& e) {
    row.failure = without_hint(e.what());  // a chain that has no form for devices
  }
  out.rows.push_back(std::move(row));
}

}  // namespace

BenchRow loader_row(const Bench& bench, int64_t batch, int64_t workers) {
  auto part = bench.config.data;
  BenchRow row{.section = "loader", .name = "as configured"};
  const auto text = std::to_string(workers) + (workers == 1 ? " worker" : " workers");
  if (workers > 0) row.name = text;
  if (batch > 0) row.name = "batch " + std::to_string(batch) + ", " + text;
  if (batch > 0) part.options.set("batch_size", ConfigNode(batch));
  if (workers > 0) part.options.set("num_workers", ConfigNode(std::to_string(workers)));
  try {
    const auto data = bench.parts.datasets.make(part, "data");
    auto loader = train_loader(data, {.seed = static_cast<uint64_t>(bench.config.seed)});
    row.numbers = {{"batch", static_cast<double>(loader.options().batch_size)},
                   {"workers", static_cast<double>(loader.options().num_workers)}};
    row.numbers.emplace_back("img_per_s", epoch_speed(
                                              loader, row, [](const Batch&) {}, [] {}));
  } catch (const Error& e) {
    if (batch == 0 && workers == 0) throw;  // the configuration's own must work
    row.failure = e.what();
  }
  return row;
}

std::vector<int64_t> doubled_up_to(int64_t most) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n < most; n *= 2) out.push_back(n);
  out.push_back(most);
  return out;
}

Samples measure_with_energy(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup, EnergyReading& energy) {
  for (int64_t i = 0; i < warmup; ++i) fn();
  bench.power.start();
  auto out = measure(fn, count, 0);
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
  BenchStep one(low, bench.parts, bench.options.batch), other(full, bench.parts, bench.options.batch);
  const double low_loss = one.loss(), full_loss = other.loss();  // of equal weights and batch
  const auto low_bytes = peak_of(one), full_bytes = peak_of(other);
  const auto name = low.precision + " beside 32-true";
  const auto train = measure_in_turn([&] { one.train(); }, [&] { other.train(); }, bench.options.pairs);
  BenchRow row{.section = "amp", .name = "train " + name, .ratio = train.ratio()};
  row.numbers = {{"step_ms_median", 1e3 * train.one.median()},
                 {"step_ms_median_32_true", 1e3 * train.other.median()},
                 {"loss", low_loss},
                 {"loss_32_true", full_loss},
                 {"loss_difference", std::abs(low_loss - full_loss)}};
  if (low_bytes > 0 && full_bytes > 0) {
    row.numbers.emplace_back("memory_bytes", static_cast<double>(low_bytes));
    row.numbers.emplace_back("memory_32_true_bytes", static_cast<double>(full_bytes));
  }
  out.rows.push_back(std::move(row));
  const auto infer = measure_in_turn([&] { one.predict(); }, [&] { other.predict(); }, bench.options.pairs);
  out.rows.push_back({.section = "amp",
                      .name = "infer " + name,
                      .numbers = {{"latency_ms_p50", 1e3 * infer.one.median()}, {"latency_ms_p50_32_true", 1e3 * infer.other.median()}},
                      .ratio = infer.ratio()});
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
      speeds.emplace_back(batch, row.number("img_per_s"));
      best = std::max(best, speeds.back().second);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::OutOfMemory) throw;
      row.numbers = {{"batch", static_cast<double>(batch)}};
      row.failure = "out of memory";
    }
    out.rows.push_back(std::move(row));
  }
  for (const auto& [batch, speed] : speeds)
    if (speed >= kKnee * best) {
      out.notes.push_back("batch: the knee is at " + std::to_string(batch) + ", from where on throughput is within 5 % of the best (" +
                          short_number(best, 3) + " img/s)");
      break;
    }
}

void bench_loader(const Bench& bench, BenchReport& out) {
  check(!bench.config.data.name.empty(), ErrorKind::Usage, "bench", "--what loader: no data; give CONFIG or data.name=...");
  std::string best_line;
  double best = 0;
  const auto samples = samples_of(bench);
  std::vector<std::string> left_out;
  for (const auto& size : kLoaderSizes) {
    if (samples >= 0 && size.batch > samples) {
      left_out.push_back(std::to_string(size.batch));
      continue;
    }
    auto row = loader_row(bench, size.batch, size.workers);
    if (const double speed = row.number("img_per_s"); speed > best) {
      best = speed;
      best_line = "data.batch_size=" + shortest(row.number("batch")) + " data.num_workers=" + shortest(row.number("workers"));
    }
    out.rows.push_back(std::move(row));
  }
  if (!left_out.empty())
    out.notes.push_back("loader: batches of " + join(left_out) + " were left out, the data has " + with_commas(samples) + " samples");
  out.notes.push_back("loader: the best of these, to paste: " + best_line);
  add_device_augmentation(bench, out);
}

void bench_checkpointing(const Bench& bench, BenchReport& out) {
  auto off = bench.config, on = bench.config;
  off.trainer.gradient_checkpointing = "none";
  on.trainer.gradient_checkpointing = "blocks";
  BenchStep one(on, bench.parts, bench.options.batch), other(off, bench.parts, bench.options.batch);
  const auto with = one.activation_bytes(), without = other.activation_bytes();
  const auto pairs = measure_in_turn([&] { one.train(); }, [&] { other.train(); }, bench.options.pairs);
  BenchRow row{.section = "checkpointing", .name = "blocks beside none", .ratio = pairs.ratio()};
  if (with > 0 && without > 0)
    row.numbers = {{"activations_bytes", static_cast<double>(with)}, {"activations_none_bytes", static_cast<double>(without)}};
  row.numbers.emplace_back("step_ms_median", 1e3 * pairs.one.median());
  row.numbers.emplace_back("step_ms_median_none", 1e3 * pairs.other.median());
  out.rows.push_back(std::move(row));
}

void bench_threads(const Bench& bench, BenchReport& out) {
  if (!Device::parse(out.device).is_cpu()) {
    out.notes.push_back("threads: not measured, the device is no CPU");
    return;
  }
  for (const int64_t threads : doubled_up_to(at::get_num_threads())) {
    auto config = bench.config;
    config.trainer.threads = threads;
    BenchStep run(config, bench.parts, bench.options.batch);
    BenchRow row{.section = "threads", .name = std::to_string(threads) + (threads == 1 ? " thread" : " threads")};
    row.numbers = {{"threads", static_cast<double>(threads)}};
    run.describe(row, measure([&] { run.train(); }, bench.options.sweep_steps, bench.options.warmup), 0);
    out.rows.push_back(std::move(row));
  }
}

double since_process_start() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
  const auto name_end = text.rfind(')');
  double up = 0;
  if (name_end == std::string::npos || !(uptime >> up)) return 0;
  std::istringstream rest(text.substr(name_end + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;
  return up - std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace npu_train::detail
