// npu_tool bench --what dist and --what stages: worlds of ranks, which this command starts itself, or which a launcher has started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/bench/bench_run.hpp"

namespace npu_train::cli {

/// Starts the worlds one after the other, the largest with the trace, and joins what their ranks 0 report. A world that fails is a row. To
/// be called before anything of a device is initialised, by a process of one thread.
BenchReport bench_worlds(const RunConfig& config, const BenchOptions& options, std::vector<int> nproc, const Parts& parts);

/// Starts a world of `ranks` for each stage and seed, the stages interleaved. `words`: the configuration's file and what overrides it. A
/// stage that fails is a row, and is not repeated. As above.
BenchReport bench_stage_worlds(const std::vector<std::string>& words, const RunConfig& config, const BenchOptions& options, int ranks,
                               int64_t seeds, const Parts& parts);

/// Measures as a rank of a launcher. Returns the report on rank 0 and none on the others; with `report` rank 0 writes it to that file.
std::optional<BenchReport> bench_as_rank(const RunConfig& config, const BenchOptions& options, const std::string& report,
                                         const Parts& parts);

/// 1 and 2, and 4 and 8 if this machine has so many processors.
std::vector<int> default_worlds();

}  // namespace npu_train::cli
