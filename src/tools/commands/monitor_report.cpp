// The part of a run's report on the records of its section `monitor`.
#include <algorithm>
#include <cmath>
#include <map>

#include "npu_train/core/text.hpp"
#include "run_record.hpp"

namespace npu_train::cli {
namespace {

Json json_of(const BandExit& exit) {
  const auto& row = exit.row;
  auto out = Json::object({{"name", row.name}, {"step", row.step}, {"attempt", row.attempt}, {"norm", row.norm}});
  if (exit.band) out.set("low", exit.band->low).set("high", exit.band->high).set("median", exit.band->median);
  return out;
}

// Adds a sentence and a document for each run.
void add_bands(Report& out, const std::vector<RunRecord>& runs) {
  auto documents = Json::array();
  for (const auto& run : runs) {
    const auto of = runs.size() == 1 ? std::string("monitor: ") : run.name + ": monitor: ";
    if (!run.monitor_error.empty()) out.say(of + "not read: " + run.monitor_error, Tone::Warn);
    if (!run.monitor) continue;
    const auto& m = *run.monitor;
    const auto windows = static_cast<int64_t>(m.log.attempts.size()), exits = static_cast<int64_t>(m.exits.size());
    const auto recorded = str_cat(of, windows, windows == 1 ? " window" : " windows", " recorded, and ");
    if (exits > 0)
      out.say(str_cat(recorded, exits,
                      exits == 1 ? " gradient norm was outside of its band: " : " gradient norms were outside of their bands; the first: ",
                      to_text(m.exits.front())),
              Tone::Warn);
    else if (std::none_of(m.log.series.begin(), m.log.series.end(), [](const auto& s) { return s.what == "gradients"; }))
      out.say(recorded + "no gradients recorded, so that no band was watched");
    else
      out.say(recorded + "no gradient norm left its band", Tone::Good);
    documents.push_back(Json::object(
        {{"run", run.name}, {"windows", windows}, {"band_exits", exits}, {"first_exit", exits == 0 ? Json() : json_of(m.exits.front())}}));
  }
  out.data({{"monitors", std::move(documents)}});
}

// Returns the norm of all gradients together, by step.
LinePlot::Series norm_of_all(const MonitorLog& log, const std::string& name) {
  std::map<int64_t, std::pair<int64_t, double>> squares;  // by window: step and square
  for (const auto& s : log.series)
    if (s.what == "gradients")
      for (const auto& row : s.rows) squares[row.attempt].first = row.step, squares[row.attempt].second += row.norm * row.norm;
  LinePlot::Series out{.name = name};
  for (const auto& [attempt, at] : squares) out.x.push_back(static_cast<double>(at.first)), out.y.push_back(std::sqrt(at.second));
  return out;
}

// Plots the gradient norms that were the first to leave their bands.
void plot_exits(Report& out, const MonitorRecord& m) {
  constexpr size_t kMostCurves = 8;
  LinePlot plot{.title = "Gradient norms that left their bands", .x_label = "step", .y_label = "norm", .log_y = true};
  for (const auto& exit : m.exits) {
    const bool drawn = std::any_of(plot.series.begin(), plot.series.end(), [&](const auto& s) { return s.name == exit.row.name; });
    if (drawn || plot.series.size() == kMostCurves) continue;
    LinePlot::Series curve{.name = exit.row.name};
    for (const auto& s : m.log.series)
      if (s.what == "gradients" && s.name == exit.row.name)
        for (const auto& row : s.rows) curve.x.push_back(static_cast<double>(row.step)), curve.y.push_back(row.norm);
    plot.series.push_back(std::move(curve));
  }
  if (plot.series.empty()) return;
  plot.marks.push_back({static_cast<double>(m.exits.front().row.step), "first"});
  out.plot(std::move(plot));
}

// Plots the norms of the last recorded window, layer by layer.
void plot_last(Report& out, const MonitorLog& log, const std::string& what) {
  BarPlot plot{.title = "Norms of " + what + " in the last recorded window", .x_label = what, .y_label = "norm", .log_y = true};
  for (const auto& s : log.series)
    if (s.what == what) plot.bars.push_back({.name = s.name, .value = s.rows.back().norm});
  if (what == "gradients") std::reverse(plot.bars.begin(), plot.bars.end());  // in forward order, like the other kinds
  if (!plot.bars.empty()) out.plot(std::move(plot));
}

ReportTable tensors_of(const MonitorLog& log) {
  ReportTable out{.title = "Monitored tensors"};
  for (const auto& s : log.series) {
    const auto less = [](const MonitorRow& a, const MonitorRow& b) {
      return std::isfinite(a.norm) && (!std::isfinite(b.norm) || a.norm < b.norm);
    };
    const auto &last = s.rows.back(), &low = *std::min_element(s.rows.begin(), s.rows.end(), less),
               &high = *std::max_element(s.rows.begin(), s.rows.end(), less);
    int64_t broken = 0;
    for (const auto& row : s.rows) broken += row.nans + row.infs;
    out.add({both("what", s.what), both("name", s.name), both("elements", last.numel),
             both("last", "last norm", number_value(last.norm, 5)), both("lowest", "lowest norm", number_value(low.norm, 5)),
             both("highest", "highest norm", number_value(high.norm, 5)), both("highest_step", "step of highest", high.step),
             both("mean", "last mean", number_value(last.mean, 4)), both("std", "last std", number_value(last.std, 4)),
             both("zeros", "last zeros", share_value(last.zeros)), both("not_finite", "NaN and inf", broken)});
  }
  return out;
}

}  // namespace

void add_monitors(Report& out, const std::vector<RunRecord>& runs) {
  if (std::none_of(runs.begin(), runs.end(), [](const auto& run) { return run.monitor || !run.monitor_error.empty(); })) return;
  out.heading("Monitor");
  add_bands(out, runs);
  LinePlot all{.title = "Norm of all gradients", .x_label = "step", .y_label = "norm", .log_y = true};
  for (const auto& run : runs)
    if (run.monitor)
      if (auto curve = norm_of_all(run.monitor->log, run.name); !curve.x.empty()) all.series.push_back(std::move(curve));
  if (!all.series.empty()) out.plot(std::move(all));
  if (runs.size() > 1 || !runs.front().monitor) return;
  const auto& m = *runs.front().monitor;
  plot_exits(out, m);
  for (const char* what : {"weights", "activations", "gradients", "optimizer"}) plot_last(out, m.log, what);
  out.table("monitored_tensors", tensors_of(m.log), ReportIn::Page);
}

}  // namespace npu_train::cli
