// Sections of a benchmark other than step and train.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/bench/bench_run.hpp"
#include "npu_train/tools/bench/power_meter.hpp"

namespace npu_train::detail {

/// The arguments of every section.
struct Bench {
  const RunConfig& config;
  const BenchOptions& options;
  const Parts& parts;
  PowerMeter& power;
  int64_t samples;  ///< number of samples in the data; -1: unknown

  bool is_stopped() const { return options.stopped && options.stopped(); }
  /// Throws Interrupted if the caller stopped the benchmark.
  void go_on() const {
    if (is_stopped()) throw Interrupted();
  }
  struct Interrupted {};
};

/// Like measure() and measure_alternately(), but stops between two repetitions if the caller requests it.
Samples measured(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup);
PairedSamples measured_in_turn(const Bench& bench, const std::function<void()>& one, const std::function<void()>& other, int64_t pairs,
                               int64_t warmup = 1);

/// Returns the text for the row of a size that cannot be measured.
std::string failure_of(const Error& error);

inline constexpr int64_t kLargestSweep = 64;  // largest batch of the sweeps 1, 2, 4 ...

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

/// Measures images per second of the data loader alone, over epochs of at least a second in total. `batch`, `workers`: 0 uses the
/// configuration's value. A failure is thrown if both are 0, and otherwise recorded in the row.
BenchRow loader_row(const Bench& bench, int64_t batch, int64_t workers);

/// Returns the thread counts of a sweep: 1, 2, 4 ... and `most`.
std::vector<int64_t> doubled_up_to(int64_t most);

/// Like measure(); adds the consumed energy to `energy`.
Samples measure_with_energy(const Bench& bench, const std::function<void()>& fn, int64_t count, int64_t warmup, EnergyReading& energy);
/// Adds mean power and energy per sample, as far as they were read.
void add_energy(BenchRow& row, const EnergyReading& energy, double samples);

/// Returns the seconds since the kernel started this process, including the loading of libraries. 0 if unknown.
double since_process_start();

}  // namespace npu_train::detail
