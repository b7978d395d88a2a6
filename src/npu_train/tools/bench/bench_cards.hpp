/// Comparison of cards: measurements from benchmark reports, and figures from other sources.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train {

/// One card with one batch size. NaN: unknown.
struct CardRow {
  std::string device, cann;  ///< cann: "" if not installed or unknown
  double batch = 0, seconds_per_step = 0, samples_per_s = 0;
  double memory_gb = 0;    ///< peak, 1e9 bytes
  double power_w = 0;      ///< mean power of the device; of the host if the device is a CPU
  std::string source;      ///< the report; for an external figure, its publisher
  bool elsewhere = false;  ///< not measured by npu_train
};

/// Returns the rows of a report's sections train, step and batch. Of rows with equal batches, only the first in this order is returned.
/// Error(Usage) if the report has no such rows.
std::vector<CardRow> card_rows(const BenchReport& report, const std::string& source);

/// Returns figures that others published (src/tools/bench/facts/cards.tsv).
std::vector<CardRow> cards_from_elsewhere();

/// Reads published figures from a CSV file with the columns device, batch, samples_per_s and any of cann, seconds_per_step, memory_gb,
/// power_w, source. Error(Data) for a file without the first three columns, or with invalid numbers.
std::vector<CardRow> read_cards(const std::filesystem::path& path);

/// Returns the speed relative to the first row in percent, truncated after one digit: 108.86 is 108.8. NaN if a speed is unknown.
double relative_speed(const CardRow& card, const CardRow& first);

/// Returns a table with speeds relative to the first row. Rows with different batches are marked, since their speeds are hardly comparable.
Report cards_report(const std::vector<CardRow>& cards);

}  // namespace npu_train
