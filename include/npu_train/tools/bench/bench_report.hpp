/// What a benchmark measured: rows of numbers with the times behind them, as text, JSON, CSV and a page; and two reports held against each
/// other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/bench/samples.hpp"

namespace npu_train {

/// One thing that was measured.
struct BenchRow {
  std::string section;  ///< step | train | infer | forward | amp | batch | loader | checkpointing | threads | phases | power | scaling ...
  std::string name;     ///< what in it: "batch 32", "2 threads"
  /// Named numbers with their unit in the name: samples_per_s, step_ms_median, latency_ms_p95, peak_memory_bytes, share_of_gemm ...
  std::vector<std::pair<std::string, double>> numbers{};
  Samples samples{};                  ///< seconds of the repetitions; empty where the row is a comparison
  std::optional<SpeedRatio> ratio{};  ///< of a comparison measured in turn
  std::string failure{};              ///< why there are no numbers: "out of memory"

  /// The number under `key`, NaN when there is none.
  double number(const std::string& key) const;
};

struct BenchReport {
  std::string model{}, device{}, precision{};
  std::string input{};  ///< of the model: "3x32x32, 10 classes"; "" where none was measured
  std::string data{};   ///< "cifar10, 50,000 samples"; "" without
  int64_t parameters = 0;
  int64_t flops_per_image = 0;                       ///< forward
  double gemm_flops = 0, copy_bytes_per_second = 0;  ///< of the machine, see machine_speed.hpp; 0: not measured
  std::map<std::string, std::string> environment{};
  std::vector<BenchRow> rows{};
  std::vector<std::string> notes{};  ///< sentences to read with the numbers: the best configuration, the knee, doubts
  int exit_code = 0;                 ///< of the first error that ended a section; 0: none did. Not written to files

  /// The first row of a section, or the one of that name in it; nullptr when there is none.
  const BenchRow* row(const std::string& section, const std::string& name = "") const;
};

/// `width` > 0: the room of a line; longer ones go on in further lines.
std::string to_text(const BenchReport& report, size_t width = 0);
Json to_json(const BenchReport& report);
/// One line for each number: section, name, number, value. Of a ratio its interval, pairs and verdict too.
std::string to_csv(const BenchReport& report);
/// A self-contained page. `history` are earlier reports, the oldest first: their speeds become curves and tables in which regressions are
/// marked: runs that are slower than the one before them, judged as compare_bench_reports() does. Reports of other work are left out.
std::string to_html(const BenchReport& report, const std::vector<BenchReport>& history = {});
/// Error(Data) for a file that is missing or no report.
BenchReport read_bench_report(const std::filesystem::path& path);

/// Whether two reports are of one model of equal size and FLOPs, on one kind of device, in one precision, on one kind of data.
bool same_work(const BenchReport& a, const BenchReport& b);

/// One row of both reports.
struct BenchDifference {
  std::string section, name;
  double a_ms = 0, b_ms = 0;  ///< median times
  double value = 0;           ///< speed of A over B: median time of B over that of A
  double low = 0, high = 0;   ///< from the intervals of both medians, widened by how much the machine itself differed between the runs
  SpeedRatio::Verdict verdict = SpeedRatio::Verdict::NoDifference;  ///< TooFewPairs below six times on either side
};

struct BenchComparison {
  std::string a, b;
  std::vector<BenchDifference> rows{};
  std::vector<std::string> notes{};  ///< rows of one side, environments that differ
  /// No row of A is slower.
  bool passed() const;
};

/// Rows that both have with times. Runs at different times are less sure than runs in turn: what the machine's own speed (products,
/// copies) differed by counts as scatter. Error(Usage) when no row with times is in both, or same_work() says no.
BenchComparison compare_bench_reports(const BenchReport& a, const BenchReport& b);
std::string to_text(const BenchComparison& comparison, size_t width = 0);
Json to_json(const BenchComparison& comparison);

}  // namespace npu_train
