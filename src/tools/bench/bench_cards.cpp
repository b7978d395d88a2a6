#include "npu_train/tools/bench/bench_cards.hpp"

#include <algorithm>
#include <cmath>

#include "figures.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/csv.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"
#include "tools/bench/facts/cards.hpp"

namespace npu_train {
namespace {

using detail::known, detail::number_or_nan;

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

std::string label(const CardRow& card) { return card.elsewhere ? "from elsewhere: " + card.source : card.source; }

std::string relative_text(const CardRow& card, const CardRow& first) {
  const double percent = relative_speed(card, first);
  if (std::isnan(percent)) return "-";
  return shortest(percent) + " %" + (card.batch == first.batch ? "" : " (different batch)");
}

constexpr const char* kColumns[] = {"device", "CANN", "batch", "s/step", "samples/s", "GB", "W", "relative", "source"};

std::vector<std::string> cells(const CardRow& card, const CardRow& first) {
  return {card.device,
          card.cann.empty() ? "-" : card.cann,
          known(card.batch),
          known(card.seconds_per_step),
          known(card.samples_per_s),
          known(card.memory_gb, 3),
          known(card.power_w, 3),
          relative_text(card, first),
          label(card)};
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
  // truncated, not rounded, so that no card seems faster than it was; 1e-9 compensates that 0.1 is not a binary number
  return std::floor(1e3 * card.samples_per_s / first.samples_per_s + 1e-9) / 10;
}

std::string cards_text(const std::vector<CardRow>& cards, size_t width) {
  check(!cards.empty(), ErrorKind::Usage, "bench", "there are no cards to compare; give reports, --figures FILE.csv or --elsewhere");
  TextTable table({std::begin(kColumns), std::end(kColumns)});
  for (const auto& card : cards) table.add_row(cells(card, cards.front()));
  return table.str(width) + "relative: samples per second divided by those of the first row\n";
}

Json cards_json(const std::vector<CardRow>& cards) {
  auto rows = Json::array();
  const auto add = [](Json& row, const char* key, double value) { row.set(key, std::isnan(value) ? Json() : Json(value)); };
  for (const auto& card : cards) {
    auto row = Json::object({{"device", card.device}, {"cann", card.cann}});
    add(row, "batch", card.batch);
    add(row, "seconds_per_step", card.seconds_per_step);
    add(row, "samples_per_s", card.samples_per_s);
    add(row, "memory_gb", card.memory_gb);
    add(row, "power_w", card.power_w);
    add(row, "relative_percent", relative_speed(card, cards.front()));
    row.set("elsewhere", card.elsewhere);
    row.set("source", card.source);
    rows.push_back(std::move(row));
  }
  return Json::object({{"cards", std::move(rows)}});
}

std::string cards_html(const std::vector<CardRow>& cards) {
  HtmlPage page("Comparison of cards");
  HtmlTable table{.title = "Training", .columns = {}};
  for (size_t i = 0; i < std::size(kColumns); ++i) table.columns.push_back({kColumns[i], i >= 2 && i <= 6});
  for (const auto& card : cards) {
    std::vector<HtmlTable::Cell> row;
    for (const auto& text : cells(card, cards.front())) row.push_back({text});
    table.rows.push_back(std::move(row));
  }
  page.table(table);
  page.paragraph("Relative: samples per second divided by those of the first row. Figures from elsewhere were not measured by npu_train.");
  return page.str();
}

}  // namespace npu_train
