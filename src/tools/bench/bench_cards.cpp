#include "npu_train/tools/bench/bench_cards.hpp"

#include <algorithm>
#include <cmath>

#include "figures.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "tools/bench/facts/cards.hpp"

namespace npu_train {
namespace {

using detail::number_or_nan;

CardRow card_of(const BenchReport& report, const BenchRow& row, const std::string& source) {
  CardRow out{.device = report.device, .cann = {}, .source = source};
  const auto fact = [&](const char* key) {
    const auto found = report.environment.find(key);
    return found == report.environment.end() ? std::string() : found->second;
  };
  if (const auto name = fact(report.device.starts_with("cpu") ? "cpu" : "card"); !name.empty()) out.device += " (" + name + ")";
  out.cann = fact("cann");
  out.batch = row.number("batch");
  out.seconds_per_step = row.number("step_ms_median") / 1e3;
  out.samples_per_s = row.number("samples_per_s");
  out.memory_gb = row.number("peak_memory_bytes") / 1e9;
  out.power_w = row.number("device_power_w");
  if (std::isnan(out.power_w) && report.device.starts_with("cpu")) out.power_w = row.number("host_power_w");
  return out;
}

}  // namespace

std::vector<CardRow> card_rows(const BenchReport& report, const std::string& source) {
  std::vector<CardRow> out;
  for (const char* section : {"train", "step", "batch"})
    for (const auto& row : report.rows) {
      if (row.section != section || !row.failure.empty() || std::isnan(row.number("samples_per_s"))) continue;
      const double batch = row.number("batch");
      if (std::any_of(out.begin(), out.end(), [&](const CardRow& c) { return c.batch == batch; })) continue;
      out.push_back(card_of(report, row, source));
    }
  check(!out.empty(), ErrorKind::Usage, "bench", source,
        ": has no row of the sections train, step or batch; hint: npu_tool bench CONFIG --what step --out FILE");
  return out;
}

std::vector<CardRow> cards_from_elsewhere() {
  std::vector<CardRow> out;
  for (const auto& row : detail::facts_texts(facts::cards, "cards.tsv", 8))
    out.push_back({row[0], row[1], number_or_nan(row[2]), number_or_nan(row[3]), number_or_nan(row[4]), number_or_nan(row[5]),
                   number_or_nan(row[6]), row[7], true});
  return out;
}

std::vector<CardRow> read_cards(const std::filesystem::path& path) {
  const auto table = read_csv(path);
  const auto numbers = [&](const char* column) {
    return table.has(column) ? table.numbers(column) : std::vector<double>(table.rows.size(), std::nan(""));
  };
  const auto text = [&](const char* column, size_t row, const std::string& otherwise) {
    return table.has(column) ? table.rows[row][table.index(column)] : otherwise;
  };
  const auto batch = table.numbers("batch"), speed = table.numbers("samples_per_s");
  const auto seconds = numbers("seconds_per_step"), memory = numbers("memory_gb"), power = numbers("power_w");
  std::vector<CardRow> out;
  for (size_t i = 0; i < table.rows.size(); ++i)
    out.push_back({table.rows[i][table.index("device")], text("cann", i, ""), batch[i], seconds[i], speed[i], memory[i], power[i],
                   text("source", i, path.string()), true});
  return out;
}

double relative_speed(const CardRow& card, const CardRow& first) {
  // truncated, not rounded, so that no card seems faster than it was; 1e-9 compensates for the binary representation of 0.1
  return std::floor(1e3 * card.samples_per_s / first.samples_per_s + 1e-9) / 10;
}

Report cards_report(const std::vector<CardRow>& cards) {
  check(!cards.empty(), ErrorKind::Usage, "bench", "there are no cards to compare; give reports, --figures FILE.csv or --elsewhere");
  Report out("Comparison of cards");
  ReportTable table;
  for (const auto& card : cards) {
    const auto number = [](double value, int digits = 4) { return unless_nan(number_value(value, digits)); };
    const double relative = relative_speed(card, cards.front());
    const auto relative_text = shortest(relative) + " %" + (card.batch == cards.front().batch ? "" : " (different batch)");
    table.add({both("device", card.device), both("cann", "CANN", {card.cann, card.cann.empty() ? "-" : card.cann}),
               both("batch", number(card.batch)), both("seconds_per_step", "s/step", number(card.seconds_per_step)),
               both("samples_per_s", "samples/s", number(card.samples_per_s)), both("memory_gb", "GB", number(card.memory_gb, 3)),
               both("power_w", "W", number(card.power_w, 3)), both("relative_percent", "relative", unless_nan({relative, relative_text})),
               data("elsewhere", card.elsewhere), data("source", card.source),
               shown("source", card.elsewhere ? "from elsewhere: " + card.source : card.source)});
  }
  out.table("cards", std::move(table));
  out.say("relative: samples per second divided by those of the first row");
  out.say("Figures from elsewhere were not measured by npu_train", Tone::Plain, ReportIn::Page);
  return out;
}

}  // namespace npu_train
