// The sections of a benchmark that are more than steps and the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/engine/bench_run.hpp"
#include "npu_train/engine/power_meter.hpp"

namespace npu_train::detail {

/// What every section is given.
struct Bench {
  const RunConfig& config;
  const BenchOptions& options;
  const Parts& parts;
  PowerMeter& power;
};

void bench_infer(const Bench& bench, BenchReport& out);
void bench_forward(const Bench& bench, BenchReport& out);
void bench_checkpoint(const Bench& bench, BenchReport& out);
void bench_amp(const Bench& bench, BenchReport& out);
void bench_batches(const Bench& bench, BenchReport& out);
void bench_loader(const Bench& bench, BenchReport& out);
void bench_checkpointing(const Bench& bench, BenchReport& out);
void bench_threads(const Bench& bench, BenchReport& out);
void bench_scaling(const Bench& bench, BenchReport& out);
void bench_null(const Bench& bench, BenchReport& out);

/// Pictures per second of the data's loader alone, over epochs of at least a second. `batch`, `workers` 0: as the configuration has it,
/// which must work; another size that does not is recorded.
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
