// The sections of a benchmark that are more than steps and the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/bench/bench_run.hpp"
#include "npu_train/tools/bench/power_meter.hpp"

namespace npu_train::detail {

/// What every section is given.
struct Bench {
  const RunConfig& config;
  const BenchOptions& options;
  const Parts& parts;
  PowerMeter& power;
  int64_t samples;  ///< that the data has; -1: not known

  bool is_stopped() const { return options.stopped && options.stopped(); }
  /// Ends the benchmark here if requested.
  void go_on() const {
    if (is_stopped()) throw Interrupted();
  }
  struct Interrupted {};
};

/// measure() and measure_alternately() that can be ended between two repetitions.
Samples measured(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup);
PairedSamples measured_in_turn(const Bench& bench, const std::function<void()>& one, const std::function<void()>& other, int64_t pairs,
                               int64_t warmup = 1);

/// What a size that cannot be measured says in its row.
std::string failure_of(const Error& error);

inline constexpr int64_t kLargestSweep = 64;  // samples: 1, 2, 4 ...

void bench_infer(const Bench& bench, BenchReport& out);
void bench_infer_batches(const Bench& bench, BenchReport& out);
void bench_forward(const Bench& bench, BenchReport& out);
void bench_checkpoint(const Bench& bench, BenchReport& out);
void bench_amp(const Bench& bench, BenchReport& out);
void bench_batches(const Bench& bench, BenchReport& out);
void bench_loader(const Bench& bench, BenchReport& out);
void bench_checkpointing(const Bench& bench, BenchReport& out);
void bench_threads(const Bench& bench, BenchReport& out);
void bench_scaling(const Bench& bench, BenchReport& out);
void bench_null(const Bench& bench, BenchReport& out);
void bench_dist(const Bench& bench, BenchReport& out);
void bench_stages(const Bench& bench, BenchReport& out);

/// Images per second of the data's loader alone, over epochs of at least a second. `batch`, `workers` 0: the configuration's values,
/// which must work; a failure with another size is recorded.
BenchRow loader_row(const Bench& bench, int64_t batch, int64_t workers);

/// CPU threads of a sweep: 1, 2, 4 ... and the number that there is.
std::vector<int64_t> doubled_up_to(int64_t most);

/// measure(), with what it draws meanwhile added to `energy`.
Samples measure_with_energy(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup, EnergyReading& energy);
/// Mean power and energy per sample, as far as they were read.
void add_energy(BenchRow& row, const EnergyReading& energy, double samples);

/// Seconds since the kernel started this process: loading libraries counts too. 0 where that cannot be read.
double since_process_start();

}  // namespace npu_train::detail
