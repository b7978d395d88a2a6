// The sections of a benchmark that are more than steps and the loop.
#pragma once

#include "npu_train/engine/bench_run.hpp"

namespace npu_train::detail {

/// What every section is given.
struct Bench {
  const RunConfig& config;
  const BenchOptions& options;
  const Parts& parts;
};

void bench_infer(const Bench& bench, BenchReport& out);
void bench_forward(const Bench& bench, BenchReport& out);
void bench_checkpoint(const Bench& bench, BenchReport& out);
void bench_amp(const Bench& bench, BenchReport& out);
void bench_batches(const Bench& bench, BenchReport& out);
void bench_loader(const Bench& bench, BenchReport& out);
void bench_checkpointing(const Bench& bench, BenchReport& out);
void bench_threads(const Bench& bench, BenchReport& out);

/// Seconds since the kernel started this process: loading libraries counts too. 0 where that cannot be read.
double since_process_start();

}  // namespace npu_train::detail
