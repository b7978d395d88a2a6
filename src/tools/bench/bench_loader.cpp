#include <functional>

#include "bench_sweeps.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

constexpr double kLoaderTime = 1;  // minimum time of a measurement, in seconds

struct LoaderSize {
  int64_t batch, workers;  // 0: as configured
};
constexpr LoaderSize kLoaderSizes[] = {{0, 0}, {64, 2}, {128, 4}, {256, 8}, {512, 16}};

/// Returns images per second over complete epochs. The first epoch is not counted: it fills the page cache and starts workers. `use`
/// receives every batch, `done` ends an epoch.
double epoch_speed(const Bench& bench, Loader& loader, BenchRow& row, const std::function<void(const Batch&)>& use,
                   const std::function<void()>& done) {
  const SteadyClock clock;
  int64_t images = 0;
  double seconds = 0;
  for (int64_t epoch = 0; epoch < 2 || seconds < kLoaderTime; ++epoch) {
    if (epoch == 1) images = 0, seconds = 0;
    const auto start = clock.now();
    loader.begin_epoch(epoch);
    while (const auto next = loader.next()) {
      bench.go_on();
      images += next->size;
      use(*next);
    }
    done();
    seconds += clock.now() - start;
    check(images > 0, ErrorKind::Data, "bench", "the data set provided no batch");
    if (epoch > 0) row.samples.seconds.push_back(clock.now() - start);
  }
  return static_cast<double>(images) / seconds;
}

/// Returns a function that makes a batch ready for a step: it applies transforms that `data.augment_on: device` leaves to the device, if
/// any.
std::function<void(const Batch&)> make_ready(const Bench& bench) {
  const auto device = run_device(bench.config);
  return [device](const Batch& batch) {
    if (batch.pending.empty()) return;
    to_device(batch, device);
    backend_of(device).synchronize(device);
  };
}

/// Compares augmentation on the device and on the host: images per second that reach the device ready for training.
void add_device_augmentation(const Bench& bench, BenchReport& out) {
  BenchRow row{.section = "loader", .name = "device augmentation"};
  const auto device = run_device(bench.config);
  const auto& backend = backend_of(device);
  const auto speed = [&](const char* where, BenchRow& into) {
    auto part = bench.config.data;
    part.options.set("augment_on", ConfigNode(where));
    auto data = bench.parts.datasets.make(part, "data", bench.parts.transforms);
    set_collate(data, bench.parts.collates);
    LoaderOptions runtime{.seed = static_cast<uint64_t>(bench.config.seed)};
    if (backend.capabilities(device).pinned_memory) runtime.finish = [](Batch batch) { return pin(batch); };
    auto loader = train_loader(data, runtime);
    into.numbers = {{"batch", static_cast<double>(loader.options().batch_size)},
                    {"workers", static_cast<double>(loader.options().num_workers)}};
    return epoch_speed(
        bench, loader, into, [&](const Batch& batch) { to_device(batch, device); }, [&] { backend.synchronize(device); });
  };
  try {
    BenchRow host;
    const double on_host = speed("host", host), on_device = speed("device", row);
    row.numbers.emplace_back("samples_per_s", on_device);
    row.numbers.emplace_back("ms_per_batch", 1e3 * row.numbers.front().second / on_device);
    row.numbers.emplace_back("samples_per_s_host", on_host);
    out.notes.push_back("loader: device augmentation on " + device.str() + " processes " + short_number(on_device / on_host, 2) +
                        " times as many images as augmentation on the host; both include the copies to the device");
  } catch (const Error& e) {
    row.failure = failure_of(e);  // a transform of the chain has no device version
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
    auto data = bench.parts.datasets.make(part, "data", bench.parts.transforms);
    set_collate(data, bench.parts.collates);
    auto loader = train_loader(data, {.seed = static_cast<uint64_t>(bench.config.seed)});
    row.numbers = {{"batch", static_cast<double>(loader.options().batch_size)},
                   {"workers", static_cast<double>(loader.options().num_workers)}};
    const double speed = epoch_speed(bench, loader, row, make_ready(bench), [] {});
    row.numbers.emplace_back("samples_per_s", speed);
    row.numbers.emplace_back("ms_per_batch", 1e3 * row.numbers.front().second / speed);
  } catch (const Error& e) {
    if (batch == 0 && workers == 0) throw;  // the configuration's own values must work
    row.failure = failure_of(e);
  }
  return row;
}

void bench_loader(const Bench& bench, BenchReport& out) {
  std::string best_line;
  double best = 0;
  std::vector<std::string> left_out;
  for (const auto& size : kLoaderSizes) {
    if (bench.samples >= 0 && size.batch > bench.samples) {
      left_out.push_back(std::to_string(size.batch));
      continue;
    }
    auto row = loader_row(bench, size.batch, size.workers);
    if (const double speed = row.number("samples_per_s"); speed > best) {
      best = speed;
      best_line = "data.batch_size=" + shortest(row.number("batch")) + " data.num_workers=" + shortest(row.number("workers"));
    }
    out.rows.push_back(std::move(row));
  }
  if (!left_out.empty())
    out.notes.push_back("loader: batches of " + join(left_out) + " were omitted; the data set has " + with_commas(bench.samples) +
                        " samples");
  add_device_augmentation(bench, out);
  out.notes.push_back("loader: the best of these settings: " + best_line);
}

}  // namespace npu_train::detail
