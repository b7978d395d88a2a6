// npu_tool bench --what dist and --what stages: measures worlds of ranks, which this command or a launcher has started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/bench/bench_run.hpp"

namespace npu_train::cli {

/// Starts the worlds one after the other, and joins the reports of their ranks 0. The largest world records the trace. A world that fails
/// is reported as a row. Call it from a single-threaded process, before a device is initialised.
BenchReport bench_worlds(const RunConfig& config, const BenchOptions& options, std::vector<int> nproc, const Parts& parts);

/// Starts a world of `ranks` ranks for each stage and seed, with the stages interleaved. `words`: the file and the overrides of the
/// configuration. A stage that fails is reported as a row and not repeated. The conditions for calling bench_worlds() apply here, too.
BenchReport bench_stage_worlds(const std::vector<std::string>& words, const RunConfig& config, const BenchOptions& options, int ranks,
                               int64_t seeds, const Parts& parts);

/// Measures as a rank of a launcher. Returns the report on rank 0, nullopt on the others; if `report` is not empty, rank 0 writes the
/// report to that file.
std::optional<BenchReport> bench_as_rank(const RunConfig& config, const BenchOptions& options, const std::string& report,
                                         const Parts& parts);

/// Returns the default numbers of ranks: 1 and 2, and also 4 and 8 if this machine has that many processors.
std::vector<int> default_worlds();

}  // namespace npu_train::cli
