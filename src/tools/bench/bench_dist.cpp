// Steps of the ranks that include this process: speed, bytes, and the share of communication that the backward pass hides.
#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>

#include "bench_step.hpp"
#include "bench_sweeps.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/loop.hpp"
#include "reductions.hpp"

namespace npu_train::detail {
namespace {

std::string ranks_text(int ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

// The means of one bucket over the steps.
BenchRow bucket_row(const Reductions& reductions, size_t index, const std::string& name) {
  ReductionTimes::Bucket sum;
  for (const auto& times : reductions.all) {
    const auto& b = times.buckets[index];
    sum.exchange = {sum.exchange.begin + b.exchange.begin, sum.exchange.end + b.exchange.end};
    sum.between = {sum.between.begin + b.between.begin, sum.between.end + b.between.end};
    sum.gather = {sum.gather.begin + b.gather.begin, sum.gather.end + b.gather.end};
  }
  const auto& last = reductions.all.back();
  const auto ms = [&](double seconds) { return 1e3 * seconds / static_cast<double>(reductions.all.size()); };
  const double arrived = std::max({sum.exchange.end, sum.between.end, sum.gather.end});
  BenchRow row{.section = "dist",
               .name = name + ", bucket " + std::to_string(index),
               .numbers = {{"sent_bytes", static_cast<double>(last.buckets[index].bytes)},
                           {"sent_at_ms", ms(sum.exchange.begin)},
                           {"exchange_ms", ms(sum.exchange.end - sum.exchange.begin)},
                           {"gather_ms", ms(sum.gather.end - sum.gather.begin)},
                           {"arrived_at_ms", ms(arrived)}}};
  if (sum.between.end > 0) row.numbers.emplace_back("between_ms", ms(sum.between.end - sum.between.begin));
  return row;
}

// Writes a trace for chrome://tracing and Perfetto: the last step of each rank, from the beginning of its backward pass.
void write_trace(const std::string& path, const std::vector<std::string>& ranks) {
  write_file_atomic(path, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + join(ranks, ",\n") + "\n]}\n");
}

std::string trace_of(const ReductionTimes& times, int rank) {
  std::vector<std::string> events;
  const auto add = [&](Json event) { events.push_back(event.dump(0)); };
  const auto label = [&](const char* kind, int lane, const std::string& name) {
    auto event = Json::object({{"name", kind}, {"ph", "M"}, {"pid", int64_t{rank}}, {"args", Json::object({{"name", name}})}});
    event.set("tid", int64_t{lane});
    add(std::move(event));
  };
  const auto span = [&](const std::string& name, int lane, double begin, double end, int64_t bytes) {
    if (end <= begin) return;
    auto event = Json::object({{"name", name}, {"ph", "X"}, {"pid", int64_t{rank}}, {"tid", int64_t{lane}}});
    event.set("ts", 1e6 * begin);
    event.set("dur", 1e6 * (end - begin));
    if (bytes > 0) event.set("args", Json::object({{"sent_bytes", bytes}}));
    add(std::move(event));
  };
  label("process_name", 0, "rank " + std::to_string(rank));
  label("thread_name", 0, "training");
  label("thread_name", 1, "exchange of parts");
  label("thread_name", 2, "gather of sums");
  label("thread_name", 3, "sums between groups");
  span("backward", 0, 0, times.backward, 0);
  span("wait for gradients", 0, times.backward, times.end, 0);
  for (size_t b = 0; b < times.buckets.size(); ++b) {
    const auto name = "bucket " + std::to_string(b);
    span(name, 1, times.buckets[b].exchange.begin, times.buckets[b].exchange.end, times.buckets[b].bytes);
    span(name, 2, times.buckets[b].gather.begin, times.buckets[b].gather.end, 0);
    span(name, 3, times.buckets[b].between.begin, times.buckets[b].between.end, times.buckets[b].between_bytes);
  }
  return join(events, ",\n");
}

void measure_ranks(const Bench& bench, int64_t batch, const std::string& kind, BenchReport& out) {
  BenchStep run(bench.config, bench.parts, batch);
  auto& strategy = *run.trainer().loop().parts().strategy;
  const int ranks = strategy.ranks().size();
  Reductions reductions;
  int64_t before = bench.options.warmup;
  const auto times = measured(
      bench,
      [&] {
        run.train();
        if (before-- <= 0) reductions.all.push_back(strategy.reduction_times());
      },
      bench.options.steps, bench.options.warmup);
  const double seconds = times.median(), samples = static_cast<double>(batch * ranks);
  const auto name = (kind.empty() ? "" : kind + ", ") + ranks_text(ranks) + " x batch " + std::to_string(batch);
  BenchRow row{.section = "dist",
               .name = name,
               .numbers = {{"ranks", static_cast<double>(ranks)},
                           {"batch", static_cast<double>(batch)},
                           {"threads", static_cast<double>(at::get_num_threads())},
                           {"samples_per_s", samples / seconds},
                           {"step_ms_median", 1e3 * seconds},
                           {"step_ms_min", 1e3 * times.min()},
                           {"step_ms_p95", 1e3 * times.percentile(95)}},
               .samples = times};
  const bool travels = ranks > 1 && !reductions.all.empty();
  if (travels) reductions.describe(row, times);
  out.rows.push_back(std::move(row));
  if (!travels) return;
  for (size_t b = 0; b < reductions.all.back().buckets.size(); ++b) out.rows.push_back(bucket_row(reductions, b, name));
  if (bench.options.trace.empty() || kind == "strong") return;
  const auto traces = strategy.ranks().gather(trace_of(reductions.all.back(), strategy.ranks().rank()));
  if (strategy.ranks().is_main()) write_trace(bench.options.trace, traces);
}

}  // namespace

void bench_dist(const Bench& bench, BenchReport& out) {
  const int ranks = launch_of_environment().world_size;
  const auto batch = bench.options.batch;
  measure_ranks(bench, batch, ranks > 1 ? "weak" : "", out);
  if (ranks == 1) return;
  if (batch % ranks == 0)
    measure_ranks(bench, batch / ranks, "strong", out);
  else
    out.notes.push_back("strong scaling over " + std::to_string(ranks) + " ranks was omitted: they do not divide a batch of " +
                        std::to_string(batch) + "; hint: --batch");
}

}  // namespace npu_train::detail

namespace npu_train {

BenchReport joined_worlds(std::vector<BenchReport> worlds) {
  check(!worlds.empty(), ErrorKind::Usage, "bench", "no world was measured");
  auto out = worlds.front();
  out.rows.clear();
  out.notes.clear();
  double alone = 0;
  for (const auto& world : worlds)
    for (const auto& row : world.rows)
      if (row.number("ranks") == 1) alone = row.number("samples_per_s");
  for (auto& world : worlds) {
    for (auto& row : world.rows) {
      const double ranks = row.number("ranks");
      if (alone > 0 && ranks > 1) row.numbers.emplace_back("efficiency", row.number("samples_per_s") / (ranks * alone));
      out.rows.push_back(std::move(row));
    }
    out.notes.insert(out.notes.end(), world.notes.begin(), world.notes.end());
    if (out.exit_code == 0) out.exit_code = world.exit_code;
  }
  return out;
}

}  // namespace npu_train
