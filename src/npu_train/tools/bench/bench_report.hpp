/// The results of a benchmark: rows of numbers with the underlying times, as text, JSON, CSV and a page; and the comparison of two reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/bench/samples.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// One measurement.
struct BenchRow {
  std::string section;  ///< step | train | infer | forward | amp | batch | loader | checkpointing | threads | phases | power | scaling ...
  std::string name;     ///< name within the section: "batch 32", "2 threads"
  /// Named numbers with their unit in the name: samples_per_s, step_ms_median, latency_ms_p95, peak_memory_bytes, share_of_gemm ...
  std::vector<std::pair<std::string, double>> numbers{};
  Samples samples{};                  ///< seconds per repetition; empty if the row is a comparison
  std::optional<SpeedRatio> ratio{};  ///< result of an interleaved comparison
  std::string failure{};              ///< the reason for missing numbers: "out of memory"

  /// Returns the number under `key`; NaN if there is none.
  double number(const std::string& key) const;
};

struct BenchReport {
  std::string model{}, device{}, precision{};
  std::string input{};  ///< input of the model: "3x32x32, 10 classes"; "" if no model was measured
  std::string data{};   ///< "cifar10, 50,000 samples"; "": none
  int64_t parameters = 0;
  int64_t flops_per_image = 0;                       ///< FLOPs of the forward pass
  double gemm_flops = 0, copy_bytes_per_second = 0;  ///< speed of the machine, see machine_speed.hpp; 0: not measured
  std::map<std::string, std::string> environment{};
  std::vector<BenchRow> rows{};
  std::vector<std::string> notes{};  ///< sentences to read with the numbers: on the best configuration, the knee, doubts
  int exit_code = 0;                 ///< exit code of the first error that ended a section; 0: none. Not written to files

  /// Returns the first row of a section or, if `name` is given, its row of that name; nullptr if there is none.
  const BenchRow* row(const std::string& section, const std::string& name = "") const;
};

/// Returns the document in the form that read_bench_report() reads.
Json to_json(const BenchReport& report);
/// Writes one line per number: section, name, number, value. For a ratio also its interval, pairs and verdict.
std::string to_csv(const BenchReport& report);
/// Reports a benchmark. `history`: earlier reports, the oldest first. Their speeds become curves, and tables that mark regressions: runs
/// that are slower than the previous one by the rules of compare_bench_reports(). Reports of other work are omitted.
Report report_of(const BenchReport& report, const std::vector<BenchReport>& history = {});
/// Reads a report. Error(Data) for a file that is missing or not a report.
BenchReport read_bench_report(const std::filesystem::path& path);

/// Whether two reports measure the same model with equal size and FLOPs, on the same kind of device, with equal precision and kind of data.
bool same_work(const BenchReport& a, const BenchReport& b);

/// One row that both reports have.
struct BenchDifference {
  std::string section, name;
  double a_ms = 0, b_ms = 0;  ///< median times
  double value = 0;           ///< speed of A relative to B: median time of B divided by that of A
  double low = 0, high = 0;   ///< interval of `value`, from the intervals of both medians, widened by the drift of the machine's speed
  SpeedRatio::Verdict verdict = SpeedRatio::Verdict::NoDifference;  ///< TooFewPairs if a side has fewer than six times
};

struct BenchComparison {
  std::string a, b;
  std::vector<BenchDifference> rows{};
  std::vector<std::string> notes{};  ///< rows on one side only, different environments
  /// Returns whether no row of A is slower.
  bool passed() const;
};

/// Compares the rows that have times in both reports. These runs are not interleaved and thus less certain: the difference of the machine's
/// own speed (products, copies) counts as scatter. Error(Usage) if there is no such row, or if same_work() returns false.
BenchComparison compare_bench_reports(const BenchReport& a, const BenchReport& b);
Report report_of(const BenchComparison& comparison);

}  // namespace npu_train
