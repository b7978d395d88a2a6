/// Cards next to each other: what reports of benchmarks measured, and figures that come from elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train {

/// One card at one batch. NaN: not known.
struct CardRow {
  std::string device, cann;  ///< cann: "" where there is none, or none is known
  double batch = 0, seconds_per_step = 0, samples_per_s = 0;
  double memory_gb = 0;    ///< peak, 1e9 bytes
  double power_w = 0;      ///< mean of the device; of the host where the device is a CPU
  std::string source;      ///< the report; of a figure from elsewhere who published it
  bool elsewhere = false;  ///< not measured by npu_train
};

/// Of a report: its rows of the sections train, step and batch; of equal batches the first in this order.
/// Error(Usage) where it has none of them.
std::vector<CardRow> card_rows(const BenchReport& report, const std::string& source);

/// Figures that others published (src/tools/bench/facts/cards.tsv).
std::vector<CardRow> cards_from_elsewhere();

/// The same of a CSV file with columns device, batch, samples_per_s and any of cann, seconds_per_step, memory_gb, power_w, source.
/// Error(Data) for a file that has not these columns, or numbers that are none.
std::vector<CardRow> read_cards(const std::filesystem::path& path);

/// Speed over that of the first row, in percent, cut after one digit: 108.86 is 108.8. NaN where one of them is not known.
double relative_speed(const CardRow& card, const CardRow& first);

/// A table; speeds are relative to the first row. Rows of other batches are marked: their speeds say little.
std::string cards_text(const std::vector<CardRow>& cards, size_t width = 0);
Json cards_json(const std::vector<CardRow>& cards);
std::string cards_html(const std::vector<CardRow>& cards);

}  // namespace npu_train
