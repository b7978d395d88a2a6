#include <cmath>

#include "npu_train/bench/bench_report.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/report/html_page.hpp"
#include "npu_train/report/number.hpp"

namespace npu_train {
namespace {

/// Numbers of a section over the first number of each row ("batch", "threads", "workers").
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

/// Speeds of the first row of `section` over the runs; a run that is slower than the one before it is marked.
void add_history(HtmlPage& page, const BenchReport& report, const std::vector<BenchReport>& history, const std::string& section) {
  LinePlot plot{.title = "History of " + section, .x_label = "run", .y_label = "median, ms"};
  LinePlot::Series series{.name = section};
  const BenchReport* before = nullptr;
  const auto add = [&](const BenchReport& r) {
    const auto* row = r.row(section);
    if (row == nullptr || row->samples.size() == 0 || r.model != report.model || r.device != report.device ||
        r.precision != report.precision)
      return;
    series.x.push_back(static_cast<double>(series.x.size() + 1));
    series.y.push_back(1e3 * row->samples.median());
    if (before != nullptr && !compare_bench_reports(r, *before).passed()) plot.marks.push_back({series.x.back(), "slower"});
    before = &r;
  };
  for (const auto& r : history) add(r);
  add(report);
  plot.series.push_back(std::move(series));
  if (plot.series.front().x.size() > 1) page.plot(plot);
}

}  // namespace

std::string to_html(const BenchReport& report, const std::vector<BenchReport>& history) {
  HtmlPage page("Benchmark of " + report.model + " on " + report.device);
  page.facts({{"precision", report.precision},
              {"parameters", with_commas(report.parameters)},
              {"GFLOP a sample", short_number(static_cast<double>(report.flops_per_image) * 1e-9)},
              {"products", report.gemm_flops > 0 ? short_number(report.gemm_flops * 1e-9) + " GFLOP/s" : "not measured"},
              {"copies", report.copy_bytes_per_second > 0 ? short_number(report.copy_bytes_per_second * 1e-9) + " GB/s" : "not measured"}});
  for (const auto& note : report.notes) page.paragraph(note);
  add_curve(page, report, "batch", "Throughput by batch", {"img_per_s"}, "img/s");
  add_curve(page, report, "batch", "Latency by batch", {"step_ms_median", "step_ms_p95"}, "ms");
  add_curve(page, report, "threads", "Throughput by threads", {"img_per_s"}, "img/s");
  add_curve(page, report, "batch", "Memory by batch", {"peak_memory_bytes"}, "bytes");
  for (const char* section : {"train", "infer"}) add_history(page, report, history, section);
  page.table(rows_table(report));
  HtmlTable facts{.title = "Environment", .columns = {{"fact"}, {"value"}}};
  for (const auto& [name, value] : report.environment) facts.rows.push_back({{name}, {value}});
  page.table(facts);
  return page.str();
}

}  // namespace npu_train
