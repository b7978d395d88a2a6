#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/bench/bench_report.hpp"
#include "npu_train/tools/bench/stages.hpp"
#include "npu_train/tools/report/report.hpp"

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

void add_curve(Report& out, const BenchReport& report, const std::string& section, const std::string& title,
               const std::vector<std::string>& keys, const std::string& unit) {
  LinePlot plot{.title = title, .x_label = section, .y_label = unit};
  for (const auto& key : keys)
    if (auto series = curve(report, section, key); series.x.size() > 1) plot.series.push_back(std::move(series));
  if (!plot.series.empty()) out.plot(plot);
}

/// Plots samples per second over the number of ranks, and linear growth from one rank.
void add_ranks(Report& out, const BenchReport& report) {
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
  if (!plot.series.empty()) out.plot(plot);
}

/// Adds the stages of this machine, and, on the page, published stages of another machine.
void add_stage_tables(Report& out, const BenchReport& report) {
  if (report.row("stages") == nullptr) return;
  ReportTable times{.title = "Stages, each on top of the one before"}, use{.title = "Use of this machine"}, published;
  std::vector<std::string> failures;
  for (const auto& row : report.rows) {
    if (row.section != "stages") continue;
    const auto number = [&](const char* key) { return unless_nan(number_value(row.number(key), 3)); };
    const auto share = [&](const char* key) {
      auto value = unless_nan(share_value(row.number(key)));
      return row.number(key) > kMostOfAll ? ReportValue(value.exact, value.text + " (!)", Tone::Warn) : value;
    };
    const auto bytes = [&](const char* key) { return unless_nan(bytes_value(row.number(key))); };
    const double speed = row.number("speedup"), seeds = row.number("seeds");
    times.add({shown("stage", row.name), shown("ms/step", number("step_ms_median")),
               shown("speed", unless_nan({speed, short_number(speed, 3) + "x"})), shown("memory", bytes("memory_bytes")),
               shown("comm.", share("share_communication")), shown("waits", share("share_exposed")),
               shown("diverged", std::isnan(seeds) ? Json() : Json(short_number(row.number("diverged")) + " of " + short_number(seeds))),
               shown("loss", number("loss"))});
    use.add({shown("stage", row.name), shown("compute", share("share_of_products")), shown("memory bandwidth", share("share_of_copies")),
             shown("link", share("share_of_link")), shown("hidden", share("share_hidden")), shown("sent per step", bytes("sent_bytes"))});
    if (!row.failure.empty()) failures.push_back(row.name + ": " + row.failure);
  }
  out.table("", times);
  out.table("", use);
  for (const auto& failure : failures) out.say(failure, Tone::Warn);
  published.title = "Another machine's: " + published_stages_of();
  for (const auto& s : published_stages())
    published.add({shown("stage", s.name), shown("s per step", unless_nan(number_value(s.seconds_per_step, 3))),
                   shown("memory, GB", unless_nan(number_value(s.memory_gb, 3))),
                   shown("communication, %", unless_nan(number_value(s.communication_percent, 3))), shown("stability", s.stability),
                   shown("AI Core, %", unless_nan(number_value(s.compute_percent, 3))),
                   shown("memory bandwidth, %", unless_nan(number_value(s.memory_percent, 3))),
                   shown("link, %", unless_nan(number_value(s.link_percent, 3)))});
  out.say("The last table was not measured by npu_train, and its model, data and devices differ from those of the others", Tone::Plain,
          ReportIn::Page);
  out.table("", published, ReportIn::Page);
}

Tone tone_of(const BenchRow& row) {
  if (!row.failure.empty()) return Tone::Warn;
  if (!row.ratio) return Tone::Plain;
  return row.ratio->verdict == SpeedRatio::Verdict::Faster   ? Tone::Good
         : row.ratio->verdict == SpeedRatio::Verdict::Slower ? Tone::Bad
                                                             : Tone::Plain;
}

ReportValue value_of(const std::string& key, double value) { return key.ends_with("_bytes") ? bytes_value(value) : ReportValue(value); }

/// Returns a row for each number.
ReportTable numbers_table(const BenchReport& report) {
  ReportTable out{.title = "Measurements"};
  for (const auto& row : report.rows) {
    if (row.section == "power") continue;  // shown as a sentence instead
    const auto add = [&](const std::string& number, const ReportValue& value) {
      out.add({shown("section", row.section), shown("what", row.name), shown("number", number), shown("value", value)});
    };
    if (!row.failure.empty()) add("failed", toned(row.failure, Tone::Warn));
    if (row.ratio) add("ratio", {row.ratio->value, row.ratio->str(), tone_of(row)});
    for (const auto& [key, value] : row.numbers) add(key, value_of(key, value));
  }
  return out;
}

/// Returns a row for each measurement, with its numbers in one cell: for a terminal.
ReportTable rows_table(const BenchReport& report) {
  ReportTable out;
  for (const auto& row : report.rows) {
    if (row.section == "stages") continue;  // shown in separate tables
    std::vector<std::string> parts;
    if (row.ratio) parts.push_back(row.ratio->str());
    for (const auto& [key, value] : row.numbers) parts.push_back(key + " " + value_of(key, value).text);
    out.add({shown("section", row.section), shown("what", row.name), shown("measured", row.failure.empty() ? join(parts) : row.failure)});
  }
  return out;
}

/// Adds a table to the page, unless it has no rows.
void add_filled(Report& out, const ReportTable& table) {
  if (!table.rows.empty()) out.table("", table, ReportIn::Page);
}

/// Plots the sweeps whose sections begin with "scaling": the second number of a row over the first, and linear growth.
void add_scaling(Report& out, const BenchReport& report) {
  std::vector<std::string> done;
  ReportTable table{.title = "Growth"};
  for (const auto& first : report.rows) {
    if (!first.section.starts_with("scaling ") || first.numbers.size() < 2) continue;
    if (std::find(done.begin(), done.end(), first.section) != done.end()) continue;
    done.push_back(first.section);
    const auto& [x, y] = std::pair{first.numbers[0].first, first.numbers[1].first};
    LinePlot plot{.title = "Scaling: " + y + " by " + x, .x_label = x, .y_label = y};
    auto seen = curve(report, first.section, y);
    if (const auto* growth = report.row(first.section, "growth"); growth != nullptr) {
      const auto n = [&](const char* key) { return number_value(growth->number(key), 3); };
      table.add({shown("sweep", y + " by " + x), shown("exponent", n("exponent")), shown("from", n("exponent_low")),
                 shown("to", n("exponent_high")), shown("of larger half", n("exponent_of_larger_half"))});
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
    out.plot(plot);
  }
  add_filled(out, table);
}

/// Adds a table with each phase's share of a step.
void add_phases(Report& out, const BenchReport& report) {
  ReportTable table{.title = "Phases of a step"};
  for (const auto& row : report.rows) {
    if (row.section != "phases") continue;
    for (const auto& [key, value] : row.numbers)
      if (key.starts_with("share_of_"))
        table.add({shown("steps", row.name), shown("phase", key.substr(9)), shown("share", share_value(value)),
                   shown("ms per step", number_value(value * row.number("step_ms_mean"), 3))});
  }
  add_filled(out, table);
}

/// Adds a table of the numbers `keys`, for rows in which at least one of them is set.
void add_numbers(Report& out, const BenchReport& report, const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& keys) {
  ReportTable table{.title = title};
  for (const auto& row : report.rows) {
    std::vector<ReportField> fields{shown("section", row.section), shown("what", row.name)};
    bool any = false;
    for (const auto& [key, name] : keys) {
      const double value = row.number(key);
      any = any || (!std::isnan(value) && !key.starts_with("initial"));
      fields.push_back(shown(name, unless_nan(value_of(key, value))));
    }
    if (any) table.add(std::move(fields));
  }
  add_filled(out, table);
}

/// Compares a row with the same row of an earlier report.
BenchDifference difference(BenchReport report, const BenchRow& row, BenchReport before, const BenchRow& row_before) {
  report.rows = {row};
  before.rows = {row_before};
  return compare_bench_reports(report, before).rows.at(0);
}

/// Plots the speed of the report's first row of `section` over the runs; marks runs that are slower than the one before.
void add_history(Report& out, const BenchReport& report, const std::vector<BenchReport>& history, const std::string& section) {
  const auto* newest = report.row(section);
  if (newest == nullptr) return;
  const auto title = section + ", " + newest->name;
  LinePlot plot{.title = "History of " + title, .x_label = "run", .y_label = "median, ms"};
  LinePlot::Series series{.name = section};
  ReportTable table{.title = "History of " + title};
  const BenchReport* before = nullptr;
  double number = 0;
  const auto add = [&](const BenchReport& r) {
    ++number;
    const auto* row = r.row(section, newest->name);
    if (row == nullptr || row->samples.size() == 0 || !same_work(r, report)) return;
    series.x.push_back(number);
    series.y.push_back(1e3 * row->samples.median());
    ReportValue speed = Json(), verdict = Json();
    if (before != nullptr) {
      const auto d = difference(r, *row, *before, *before->row(section, newest->name));
      speed = {d.value, short_number(d.value, 3) + " (" + short_number(d.low, 3) + " to " + short_number(d.high, 3) + ")"};
      verdict = d.verdict == SpeedRatio::Verdict::TooFewPairs ? "too few measurements for a verdict" : "no difference beyond the scatter";
      if (d.verdict == SpeedRatio::Verdict::Faster) verdict = toned("faster", Tone::Good);
      if (d.verdict == SpeedRatio::Verdict::Slower) {
        verdict = toned("slower: a regression", Tone::Bad);
        plot.marks.push_back({number, "slower"});
      }
    }
    table.add({shown("run", number), shown("median, ms", series.y.back()), shown("speed relative to the previous run", speed),
               shown("verdict", verdict)});
    before = &r;
  };
  for (const auto& r : history) add(r);
  add(report);
  if (series.x.size() < 2) return;
  plot.series.push_back(std::move(series));
  out.plot(plot);
  out.table("", table, ReportIn::Page);
}

void add_histories(Report& out, const BenchReport& report, const std::vector<BenchReport>& history) {
  if (history.empty()) return;
  out.heading("History");
  const auto others = std::count_if(history.begin(), history.end(), [&](const BenchReport& r) { return !same_work(r, report); });
  if (others > 0)
    out.say(std::to_string(others) + " of " + std::to_string(history.size()) +
                " earlier reports measure different work (model, images, device, precision or data) and are omitted",
            Tone::Warn, ReportIn::Page);
  for (const char* section : {"step", "train", "infer"}) add_history(out, report, history, section);
}

}  // namespace

Report report_of(const BenchReport& report, const std::vector<BenchReport>& history) {
  Report out("Benchmark of " + (report.model.empty() ? "the loader of " + report.data : report.model) + " on " + report.device,
             to_json(report));
  out.fit_to(120);  // a row has dozens of numbers
  const auto flops = short_number(static_cast<double>(report.flops_per_image) * 1e-9);
  if (!report.model.empty())
    out.say(report.model + " on " + report.device + " in " + report.precision + ": " + report.input + "; " +
                with_commas(report.parameters) + " parameters, " + flops + " GFLOP per sample",
            Tone::Plain, ReportIn::Text);
  if (!report.data.empty()) out.say("data: " + report.data, Tone::Plain, ReportIn::Text);
  const auto products = short_number(report.gemm_flops * 1e-9) + " GFLOP/s",
             copies = short_number(report.copy_bytes_per_second * 1e-9) + " GB/s";
  if (report.gemm_flops > 0) out.say("this machine: " + products + " in products, " + copies + " in copies", Tone::Plain, ReportIn::Text);
  for (const char* section : {"step", "train", "infer"})
    if (const auto* row = report.row(section); row != nullptr && row->number("samples_per_s") > 0) {
      out.say("The section " + std::string(section) + " with " + row->name + " reached " + short_number(row->number("samples_per_s")) +
                  " samples/s, " + short_number(row->number("step_ms_median")) + " ms in the median",
              Tone::Plain, ReportIn::Page);
      break;
    }
  out.facts({shown("precision", report.precision), shown("input", report.input.empty() ? "-" : report.input),
             shown("data", report.data.empty() ? "-" : report.data), shown("parameters", report.parameters),
             shown("GFLOP per sample", flops), shown("products", report.gemm_flops > 0 ? products : "not measured"),
             shown("copies", report.copy_bytes_per_second > 0 ? copies : "not measured")},
            ReportIn::Page);
  out.table("", rows_table(report), ReportIn::Text);
  const auto add_notes = [&](ReportIn in) {
    for (const auto& note : report.notes)
      out.say(note, note.find("WORSE THAN LINEAR") != note.npos || note.find("SLOWER") != note.npos ? Tone::Warn : Tone::Plain, in);
  };
  add_notes(ReportIn::Page);
  add_curve(out, report, "batch", "Throughput by batch", {"samples_per_s"}, "samples/s");
  add_curve(out, report, "batch", "Latency by batch", {"step_ms_median", "step_ms_p95"}, "ms");
  add_curve(out, report, "infer-batch", "Inference: throughput by batch", {"samples_per_s"}, "samples/s");
  add_curve(out, report, "infer-batch", "Inference: latency by batch", {"latency_ms_p50", "latency_ms_p95"}, "ms");
  add_ranks(out, report);
  add_stage_tables(out, report);
  add_notes(ReportIn::Text);
  add_curve(out, report, "threads", "Throughput by threads", {"samples_per_s"}, "samples/s");
  const auto exact = curve(report, "batch", "activations_bytes");
  add_curve(out, report, "batch", "Memory by batch", {exact.x.size() > 1 ? "activations_bytes" : "peak_memory_bytes"}, "bytes");
  add_scaling(out, report);
  add_phases(out, report);
  add_numbers(out, report, "Memory",
              {{"initial_memory_bytes", "initial"}, {"peak_memory_bytes", "peak"}, {"memory_increase_bytes", "increase"}});
  add_numbers(out, report, "Power and energy",
              {{"host_power_w", "host, W"},
               {"host_energy_j_per_sample", "host, J per sample"},
               {"device_power_w", "device, W"},
               {"device_energy_j_per_sample", "device, J per sample"}});
  for (const auto& row : report.rows)
    if (row.section == "power") out.say("power of the " + row.name + ": " + row.failure, Tone::Plain, ReportIn::Page);
  add_histories(out, report, history);
  out.heading("All numbers");
  out.table("", numbers_table(report), ReportIn::Page);
  ReportTable facts{.title = "Environment"};
  for (const auto& [name, value] : report.environment) facts.add({shown("fact", name), shown("value", value)});
  out.table("", facts, ReportIn::Page);
  return out;
}

}  // namespace npu_train
