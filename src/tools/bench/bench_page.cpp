#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/bench/bench_report.hpp"
#include "npu_train/tools/bench/stages.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"

namespace npu_train {
namespace {

/// A curve of the numbers `key` of a section over the first number of each row ("batch", "threads", "workers").
LinePlot::Series curve(const BenchReport& report, const std::string& section, const std::string& key) {
  LinePlot::Series out{.name = key};
  for (const auto& row : report.rows) {
    if (row.section != section || row.numbers.empty() || std::isnan(row.number(key))) continue;
    out.x.push_back(row.numbers.front().second);
    out.y.push_back(row.number(key));
  }
  return out;
}

void add_curve(HtmlPage& page, const BenchReport& report, const std::string& section, const std::string& title,
               const std::vector<std::string>& keys, const std::string& unit) {
  LinePlot plot{.title = title, .x_label = section, .y_label = unit};
  for (const auto& key : keys)
    if (auto series = curve(report, section, key); series.x.size() > 1) plot.series.push_back(std::move(series));
  if (!plot.series.empty()) page.plot(plot);
}

/// Plots samples per second over the number of ranks, and linear growth from one rank.
void add_ranks(HtmlPage& page, const BenchReport& report) {
  LinePlot plot{.title = "Throughput by ranks", .x_label = "ranks", .y_label = "samples/s"};
  LinePlot::Series weak{.name = "batch per rank"}, strong{.name = "batch shared"}, linear{.name = "linear"};
  for (const auto& row : report.rows) {
    const double ranks = row.number("ranks"), speed = row.number("samples_per_s");
    if (row.section != "dist" || std::isnan(ranks)) continue;
    for (auto* series : {&weak, &strong}) {
      if (ranks > 1 && row.name.starts_with(series == &weak ? "strong" : "weak")) continue;
      series->x.push_back(ranks);
      series->y.push_back(speed);
    }
    if (row.name.starts_with("strong")) continue;
    linear.x.push_back(ranks);
    linear.y.push_back(linear.y.empty() ? speed : linear.y.front() * ranks / linear.x.front());
  }
  for (auto* series : {&weak, &strong, &linear})
    if (series->x.size() > 1) plot.series.push_back(std::move(*series));
  if (!plot.series.empty()) page.plot(plot);
}

/// Adds the stages of this machine, and published stages of another machine.
void add_stage_tables(HtmlPage& page, const BenchReport& report) {
  if (report.row("stages") == nullptr) return;
  HtmlTable table{.title = "Stages, each on top of the one before",
                  .columns = {{"stage"},
                              {"ms per step", true},
                              {"speed", true},
                              {"memory of a rank", true},
                              {"communication, %", true},
                              {"waiting, %", true},
                              {"diverged"},
                              {"loss", true},
                              {"compute, %", true},
                              {"memory bandwidth, %", true},
                              {"link, %", true}}};
  using Cell = HtmlTable::Cell;
  const auto number = [](double value, double factor = 1) {
    return std::isnan(value) ? Cell{"-"} : Cell::number(factor * value, Tone::Plain, 3);
  };
  for (const auto& row : report.rows) {
    if (row.section != "stages") continue;
    const double memory = row.number("memory_bytes"), seeds = row.number("seeds");
    table.rows.push_back(
        {{row.name},
         number(row.number("step_ms_median")),
         number(row.number("speedup")),
         std::isnan(memory) ? Cell{"-"} : Cell{human_bytes(memory), memory},
         number(row.number("share_communication"), 100),
         number(row.number("share_exposed"), 100),
         std::isnan(seeds) ? Cell{row.failure, {}, Tone::Warn} : Cell{short_number(row.number("diverged")) + " of " + short_number(seeds)},
         number(row.number("loss")),
         number(row.number("share_of_products"), 100),
         number(row.number("share_of_copies"), 100),
         number(row.number("share_of_link"), 100)});
  }
  page.table(table);
  HtmlTable published{.title = "Another machine's: " + published_stages_of(),
                      .columns = {{"stage"},
                                  {"s per step", true},
                                  {"memory, GB", true},
                                  {"communication, %", true},
                                  {"stability"},
                                  {"AI Core, %", true},
                                  {"memory bandwidth, %", true},
                                  {"link, %", true}}};
  for (const auto& s : published_stages())
    published.rows.push_back({{s.name},
                              number(s.seconds_per_step),
                              number(s.memory_gb),
                              number(s.communication_percent),
                              {s.stability},
                              number(s.compute_percent),
                              number(s.memory_percent),
                              number(s.link_percent)});
  page.paragraph("The second table was not measured by npu_train, and its model, data and devices differ from those of the first.");
  page.table(published);
}

Tone tone_of(const BenchRow& row) {
  if (!row.failure.empty()) return Tone::Warn;
  if (!row.ratio) return Tone::Plain;
  return row.ratio->verdict == SpeedRatio::Verdict::Faster   ? Tone::Good
         : row.ratio->verdict == SpeedRatio::Verdict::Slower ? Tone::Bad
                                                             : Tone::Plain;
}

HtmlTable rows_table(const BenchReport& report) {
  HtmlTable table{.title = "Measurements", .columns = {{"section"}, {"what"}, {"number"}, {"value", true}}};
  for (const auto& row : report.rows) {
    if (row.section == "power") continue;  // shown as a sentence instead
    if (!row.failure.empty()) table.rows.push_back({{row.section}, {row.name}, {"failed"}, {row.failure, {}, Tone::Warn}});
    if (row.ratio) table.rows.push_back({{row.section}, {row.name}, {"ratio"}, {row.ratio->str(), row.ratio->value, tone_of(row)}});
    for (const auto& [key, value] : row.numbers)
      table.rows.push_back({{row.section},
                            {row.name},
                            {key},
                            key.ends_with("_bytes") ? HtmlTable::Cell{human_bytes(value), value} : HtmlTable::Cell::number(value)});
  }
  return table;
}

/// Plots the sweeps whose sections begin with "scaling": the second number of a row over the first, and linear growth.
void add_scaling(HtmlPage& page, const BenchReport& report) {
  std::vector<std::string> done;
  HtmlTable table{.title = "Growth", .columns = {{"sweep"}, {"exponent", true}, {"from", true}, {"to", true}, {"of larger half", true}}};
  for (const auto& first : report.rows) {
    if (!first.section.starts_with("scaling ") || first.numbers.size() < 2) continue;
    if (std::find(done.begin(), done.end(), first.section) != done.end()) continue;
    done.push_back(first.section);
    const auto& [x, y] = std::pair{first.numbers[0].first, first.numbers[1].first};
    LinePlot plot{.title = "Scaling: " + y + " by " + x, .x_label = x, .y_label = y};
    auto seen = curve(report, first.section, y);
    if (const auto* growth = report.row(first.section, "growth"); growth != nullptr) {
      std::vector<HtmlTable::Cell> cells{{y + " by " + x}};
      for (const char* key : {"exponent", "exponent_low", "exponent_high", "exponent_of_larger_half"})
        cells.push_back(HtmlTable::Cell::number(growth->number(key), Tone::Plain, 3));
      table.rows.push_back(std::move(cells));
    }
    if (seen.x.size() < 2) continue;
    LinePlot::Series linear{.name = "linear"};
    for (const double size : seen.x) {
      linear.x.push_back(size);
      linear.y.push_back(seen.y.front() * size / seen.x.front());
    }
    const bool shared = x == "threads" || x == "workers";
    plot.series.push_back(std::move(seen));
    if (!shared) plot.series.push_back(std::move(linear));
    page.plot(plot);
  }
  if (!table.rows.empty()) page.table(table);
}

/// Adds a table with each phase's share of a step.
void add_phases(HtmlPage& page, const BenchReport& report) {
  HtmlTable table{.title = "Phases of a step", .columns = {{"steps"}, {"phase"}, {"share", true}, {"ms per step", true}}};
  for (const auto& row : report.rows) {
    if (row.section != "phases") continue;
    for (const auto& [key, value] : row.numbers) {
      if (!key.starts_with("share_of_")) continue;
      const auto phase = key.substr(9);
      table.rows.push_back({{row.name},
                            {phase},
                            {short_number(100 * value, 3) + " %", value},
                            HtmlTable::Cell::number(value * row.number("step_ms_mean"), Tone::Plain, 3)});
    }
  }
  if (!table.rows.empty()) page.table(table);
}

/// Adds a table of the numbers `keys`, for rows that have any of them except initial values.
void add_numbers(HtmlPage& page, const BenchReport& report, const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& keys) {
  HtmlTable table{.title = title, .columns = {{"section"}, {"what"}}};
  for (const auto& [key, name] : keys) table.columns.push_back({name, true});
  for (const auto& row : report.rows) {
    std::vector<HtmlTable::Cell> cells{{row.section}, {row.name}};
    bool any = false;
    for (const auto& [key, name] : keys) {
      const double value = row.number(key);
      any = any || (!std::isnan(value) && !key.starts_with("initial"));
      if (std::isnan(value))
        cells.push_back({"-"});
      else
        cells.push_back(key.ends_with("_bytes") ? HtmlTable::Cell{human_bytes(value), value} : HtmlTable::Cell::number(value));
    }
    if (any) table.rows.push_back(std::move(cells));
  }
  if (!table.rows.empty()) page.table(table);
}

/// Compares a row with the same row of an earlier report.
BenchDifference difference(BenchReport report, const BenchRow& row, BenchReport before, const BenchRow& row_before) {
  report.rows = {row};
  before.rows = {row_before};
  return compare_bench_reports(report, before).rows.at(0);
}

/// Plots the speed of the report's first row of `section` over the runs; marks runs that are slower than the one before.
void add_history(HtmlPage& page, const BenchReport& report, const std::vector<BenchReport>& history, const std::string& section) {
  const auto* newest = report.row(section);
  if (newest == nullptr) return;
  const auto title = section + ", " + newest->name;
  LinePlot plot{.title = "History of " + title, .x_label = "run", .y_label = "median, ms"};
  LinePlot::Series series{.name = section};
  HtmlTable table{.title = "History of " + title,
                  .columns = {{"run", true}, {"median, ms", true}, {"speed relative to the previous run"}, {"verdict"}}};
  const BenchReport* before = nullptr;
  double number = 0;
  const auto add = [&](const BenchReport& r) {
    ++number;
    const auto* row = r.row(section, newest->name);
    if (row == nullptr || row->samples.size() == 0 || !same_work(r, report)) return;
    series.x.push_back(number);
    series.y.push_back(1e3 * row->samples.median());
    HtmlTable::Cell speed{"-"}, verdict{"-"};
    if (before != nullptr) {
      const auto d = difference(r, *row, *before, *before->row(section, newest->name));
      speed = {short_number(d.value, 3) + " (" + short_number(d.low, 3) + " to " + short_number(d.high, 3) + ")", d.value};
      verdict = {d.verdict == SpeedRatio::Verdict::TooFewPairs ? "too few measurements for a verdict" : "no difference beyond the scatter"};
      if (d.verdict == SpeedRatio::Verdict::Faster) verdict = {"faster", {}, Tone::Good};
      if (d.verdict == SpeedRatio::Verdict::Slower) {
        verdict = {"slower: a regression", {}, Tone::Bad};
        plot.marks.push_back({number, "slower"});
      }
    }
    table.rows.push_back({HtmlTable::Cell::number(number), HtmlTable::Cell::number(series.y.back()), speed, verdict});
    before = &r;
  };
  for (const auto& r : history) add(r);
  add(report);
  if (series.x.size() < 2) return;
  plot.series.push_back(std::move(series));
  page.plot(plot);
  page.table(table);
}

void add_histories(HtmlPage& page, const BenchReport& report, const std::vector<BenchReport>& history) {
  if (history.empty()) return;
  page.heading("History");
  const auto others = std::count_if(history.begin(), history.end(), [&](const BenchReport& r) { return !same_work(r, report); });
  if (others > 0)
    page.paragraph(std::to_string(others) + " of " + std::to_string(history.size()) +
                       " earlier reports measure different work (model, images, device, precision or data) and are omitted",
                   Tone::Warn);
  for (const char* section : {"step", "train", "infer"}) add_history(page, report, history, section);
}

}  // namespace

std::string to_html(const BenchReport& report, const std::vector<BenchReport>& history) {
  HtmlPage page("Benchmark of " + (report.model.empty() ? "the loader of " + report.data : report.model) + " on " + report.device);
  for (const char* section : {"step", "train", "infer"})
    if (const auto* row = report.row(section); row != nullptr && row->number("samples_per_s") > 0) {
      page.paragraph("The section " + std::string(section) + " with " + row->name + " reached " +
                     short_number(row->number("samples_per_s")) + " samples/s, " + short_number(row->number("step_ms_median")) +
                     " ms in the median.");
      break;
    }
  page.facts({{"precision", report.precision},
              {"input", report.input.empty() ? "-" : report.input},
              {"data", report.data.empty() ? "-" : report.data},
              {"parameters", with_commas(report.parameters)},
              {"GFLOP per sample", short_number(static_cast<double>(report.flops_per_image) * 1e-9)},
              {"products", report.gemm_flops > 0 ? short_number(report.gemm_flops * 1e-9) + " GFLOP/s" : "not measured"},
              {"copies", report.copy_bytes_per_second > 0 ? short_number(report.copy_bytes_per_second * 1e-9) + " GB/s" : "not measured"}});
  for (const auto& note : report.notes)
    page.paragraph(note, note.find("WORSE THAN LINEAR") != note.npos || note.find("SLOWER") != note.npos ? Tone::Warn : Tone::Plain);
  add_curve(page, report, "batch", "Throughput by batch", {"samples_per_s"}, "samples/s");
  add_curve(page, report, "batch", "Latency by batch", {"step_ms_median", "step_ms_p95"}, "ms");
  add_curve(page, report, "infer-batch", "Inference: throughput by batch", {"samples_per_s"}, "samples/s");
  add_curve(page, report, "infer-batch", "Inference: latency by batch", {"latency_ms_p50", "latency_ms_p95"}, "ms");
  add_ranks(page, report);
  add_stage_tables(page, report);
  add_curve(page, report, "threads", "Throughput by threads", {"samples_per_s"}, "samples/s");
  const auto exact = curve(report, "batch", "activations_bytes");
  add_curve(page, report, "batch", "Memory by batch", {exact.x.size() > 1 ? "activations_bytes" : "peak_memory_bytes"}, "bytes");
  add_scaling(page, report);
  add_phases(page, report);
  add_numbers(page, report, "Memory",
              {{"initial_memory_bytes", "initial"}, {"peak_memory_bytes", "peak"}, {"memory_increase_bytes", "increase"}});
  add_numbers(page, report, "Power and energy",
              {{"host_power_w", "host, W"},
               {"host_energy_j_per_sample", "host, J per sample"},
               {"device_power_w", "device, W"},
               {"device_energy_j_per_sample", "device, J per sample"}});
  for (const auto& row : report.rows)
    if (row.section == "power") page.paragraph("power of the " + row.name + ": " + row.failure);
  add_histories(page, report, history);
  page.heading("All numbers");
  page.table(rows_table(report));
  HtmlTable facts{.title = "Environment", .columns = {{"fact"}, {"value"}}};
  for (const auto& [name, value] : report.environment) facts.rows.push_back({{name}, {value}});
  page.table(facts);
  return page.str();
}

}  // namespace npu_train
