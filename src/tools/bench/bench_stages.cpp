// Trains one stage of a benchmark: all ranks, including this process, train the configuration on its data.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "bench_step.hpp"
#include "bench_sweeps.hpp"
#include "moved_bytes.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/nn/summary.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"
#include "reductions.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kLossSteps = 10;   // steps over which the final loss is averaged
constexpr int64_t kObserved = 1;     // the window whose operators are observed; it is not measured
constexpr int64_t kLeastWarmup = 3;  // the window before, the observed one, and the one after it

// Returns the bytes per second that a rank sends while all ranks exchange parts of 4 MiB, the best of five times; NaN for one rank.
double link_speed(const DistOptions& options, const Device& device) {
  const auto launch = launch_of_environment();
  if (launch.world_size == 1) return std::nan("");
  constexpr int64_t kPart = int64_t{4} << 20, kTimes = 5;
  const auto group = make_process_group(launch, options);
  const bool between_devices = group->transport(device.c10()) != ProcessGroup::kHostTransport;
  const auto where = at::TensorOptions().dtype(at::kByte).device(between_devices ? device.c10() : c10::Device(at::kCPU));
  const auto in = at::ones({kPart * group->size()}, where), out = at::empty_like(in);
  double best = 0;
  for (int64_t i = 0; i <= kTimes; ++i) {  // the first one opens connections
    group->barrier("link");
    const auto seconds = measure(
        [&] {
          group->all_to_all(out, in)->wait();
          if (between_devices) backend_of(device).synchronize(device);
        },
        1, 0);
    if (i > 0) best = std::max(best, static_cast<double>(kPart * (group->size() - 1)) / seconds.min());
  }
  return best;
}

struct StageRun final : Callback, StepObserver {
  explicit StageRun(const Bench& of) : bench(of) {}
  void on_step_end(TrainLoop& loop, const StepReport& report) override {
    if (bench.is_stopped()) loop.request_stop();
    losses.push_back(scalar_or(report.metrics, "loss", std::nan("")));
    samples = static_cast<double>(report.samples);
    if (static_cast<int64_t>(losses.size()) <= warmup()) return;
    seconds.seconds.push_back(report.seconds);
    if (loop.parts().strategy->ranks().size() == 1) return;
    const auto times = loop.parts().strategy->reduction_times();
    // reduction_times() is one step late, except at the end of an epoch.
    if (reductions.all.empty() || times.end != reductions.all.back().end) reductions.all.push_back(times);
  }
  void phase_begin(Phase /*phase*/, int64_t attempt, int /*micro_batch*/) override {
    if (attempt == kObserved && !observer) observer.emplace(parameters, moved, /*every=*/true);
    if (attempt > kObserved) observer.reset();
  }
  int64_t warmup() const { return std::max(bench.options.warmup, kLeastWarmup); }

  const Bench& bench;
  ParameterSet parameters;
  MovedBytes moved;
  std::optional<OpObserver> observer;
  std::vector<double> losses;
  double samples = 0;
  Samples seconds;
  Reductions reductions;
};

double mean_of_last(const std::vector<double>& values, int64_t count) {
  const auto n = std::min(static_cast<int64_t>(values.size()), count);
  return n > 0 ? std::accumulate(values.end() - n, values.end(), 0.0) / static_cast<double>(n) : std::nan("");
}

double largest_of_ranks(Ranks& ranks, double own) {
  double largest = own;
  for (const auto& of_rank : ranks.gather(shortest(own))) largest = std::max(largest, decimal_number(of_rank).value());
  return largest;
}

}  // namespace

void bench_stages(const Bench& bench, BenchReport& out) {
  auto config = without_side_effects(bench.config);
  StageRun run(bench);
  config.trainer.max_epochs = -1;
  config.trainer.max_steps = run.warmup() + bench.options.steps;
  const auto device = run_device(config);
  const double link = link_speed(config.dist, device);
  const auto& backend = backend_of(device);
  const auto before = backend.memory(device).allocated;
  backend.reset_peak(device);
  Trainer trainer(config, bench.parts);
  trainer.setup();
  run.parameters = *trainer.loop().parts().parameters;
  trainer.add_observer(&run);
  trainer.add_callback(std::shared_ptr<Callback>(&run, [](Callback*) {}));
  bool diverged = false;
  try {
    trainer.fit();
  } catch (const Error& e) {  // thrown on all ranks
    if (e.kind() != ErrorKind::Diverged) throw;
    diverged = true;
  }
  run.observer.reset();
  bench.go_on();
  check(!run.losses.empty(), ErrorKind::Usage, "bench", "the run ended before its first step");
  const double last = mean_of_last(run.losses, kLossSteps);
  diverged = diverged || !std::isfinite(last) || last > 2 * run.losses.front();
  auto& strategy = *trainer.loop().parts().strategy;
  const auto memory = backend.memory(device).peak - before;
  BenchRow row{.section = "stages", .name = config.trainer.strategy + ", " + config.precision};
  const auto add = [&](const char* key, double value) { row.numbers.emplace_back(key, value); };
  add("ranks", strategy.ranks().size());
  add("batch", static_cast<double>(trainer.data().options.batch_size));
  add("diverged", diverged ? 1 : 0);
  if (!diverged) add("loss", last);
  add("memory_bytes", largest_of_ranks(strategy.ranks(), static_cast<double>(memory)));
  if (run.seconds.size() > 0) {
    add("samples_per_s", run.samples / run.seconds.median());
    add("step_ms_median", 1e3 * run.seconds.median());
    add("flops", kStepPasses * static_cast<double>(flops_per_sample(trainer.model())) * run.samples);
    add("moved_bytes", static_cast<double>(run.moved.bytes * strategy.ranks().size()));
    run.reductions.describe(row, run.seconds);
  }
  if (std::isfinite(link)) add("link_bytes_per_s", link);
  row.samples = run.seconds;
  out.rows.push_back(std::move(row));
}

}  // namespace npu_train::detail
