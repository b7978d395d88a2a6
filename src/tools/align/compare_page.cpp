// The page of a comparison.
#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/compare_report.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace {

using Kind = ItemComparison::Kind;

bool compared(const CallComparison& call) { return !call.a.empty() && !call.b.empty(); }

// Plots the error of each call's outputs in call order, for the calls of one direction.
BarPlot errors_by_layer(const StepComparison& step, const std::string& direction, const Divergence& first) {
  BarPlot plot{.title = "Error by layer, " + direction + " of step " + std::to_string(step.step),
               .x_label = "layer, in call order",
               .y_label = "relative error of the outputs",
               .log_y = true};
  for (const auto& call : step.calls) {
    const bool optimizer = call.layer.starts_with("optimizer");
    if (!compared(call) || optimizer || call.direction != direction) continue;
    const bool began = first.found && first.step == step.step && call.a == first.call;
    plot.bars.push_back({.name = call.layer.empty() ? call.a : call.layer,
                         .value = call.output_error,
                         .group = began ? "first difference of the runs" : ""});
  }
  return plot;
}

bool any_error(const BarPlot& plot) {
  return std::any_of(plot.bars.begin(), plot.bars.end(), [](const BarPlot::Bar& bar) { return bar.value != 0; });
}

Histogram errors_by_size(const std::vector<detail::Row>& rows) {
  Histogram out{.title = "Values by relative error", .x_label = "relative error", .edges = {0}, .log_x = true};
  for (int power = -9; power <= 1; ++power) out.edges.push_back(std::pow(10.0, power));
  out.counts.assign(out.edges.size() - 1, 0);
  for (const auto& row : rows) {
    if (row.item->kind == Kind::OneSided || row.item->kind == Kind::NotCompared || !row.item->item_a.is_tensor()) continue;
    const auto at = std::upper_bound(out.edges.begin(), out.edges.end(), row.item->error) - out.edges.begin();
    ++out.counts[static_cast<size_t>(std::clamp<long>(at - 1, 0, static_cast<long>(out.counts.size()) - 1))];
  }
  return out;
}

// Adds curves of the loss and the learning rate by step, as far as the dumps contain them.
void add_curves(const DumpComparison& comparison, HtmlPage& page) {
  LinePlot loss{.title = "Loss", .x_label = "step", .y_label = "loss", .series = {{"A"}, {"B"}}};
  LinePlot rate{.title = "Learning rate", .x_label = "step", .y_label = "lr", .series = {{"A"}, {"B"}}};
  const auto add = [](LinePlot& plot, int64_t step, double a, double b) {
    for (auto& series : plot.series) series.x.push_back(static_cast<double>(step));
    plot.series[0].y.push_back(a);
    plot.series[1].y.push_back(b);
  };
  for (const auto& step : comparison.steps)
    for (const auto& call : step.calls)
      for (const auto& item : call.items) {
        if (call.layer == "loss" && item.item_a.mean && item.item_b.mean) add(loss, step.step, *item.item_a.mean, *item.item_b.mean);
        if (item.kind == Kind::Value && item.a.ends_with(".lr"))
          add(rate, step.step, decimal_number(item.item_a.value).value_or(0), decimal_number(item.item_b.value).value_or(0));
      }
  if (!loss.series[0].x.empty()) page.plot(loss);
  if (!rate.series[0].x.empty()) page.plot(rate);
}

bool any_crc(const std::vector<detail::Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const auto& row) {
    const auto [a, b] = detail::crc_of(*row.item);
    return !a.empty() || !b.empty();
  });
}

// The most important columns come first, since the table is wider than a page and scrolls.
HtmlTable table_of(const std::vector<detail::Row>& rows) {
  HtmlTable table{.title = "Values, worst first",
                  .columns = {{"Step", true},
                              {"Value"},
                              {"Verdict"},
                              {"Error", true},
                              {"Amplification", true},
                              {"Message"},
                              {"Shape"},
                              {"Dtype"},
                              {"Cosine", true},
                              {"Max abs", true},
                              {"Mean abs", true},
                              {"RMSE", true},
                              {"Euclidean", true},
                              {"Norm A / B", true},
                              {"Within 1/1000", true},
                              {"Within 5/1000", true},
                              {"Max ULP", true}}};
  const bool crc = any_crc(rows);
  if (crc) table.columns.insert(table.columns.end(), {{"CRC-32 A"}, {"CRC-32 B"}});
  for (const auto& [step, call, item] : detail::worst_first(rows)) {
    const auto& any = item->item_a.is_tensor() ? item->item_a : item->item_b;
    auto dtype = detail::short_dtype(any);
    if (item->item_b.is_tensor() && item->item_b.dtype != any.dtype) dtype += " / " + detail::short_dtype(item->item_b);
    const bool values = item->kind == Kind::Tensor;
    const auto number = [&](double v) { return values ? HtmlTable::Cell::number(v) : HtmlTable::Cell{"-", -1}; };
    const auto verdict = detail::verdict_of(*item);
    const auto tone = item->failed ? Tone::Bad : verdict == "agrees" ? Tone::Good : Tone::Warn;
    const auto& m = item->metrics;
    table.rows.push_back({HtmlTable::Cell::number(static_cast<double>(step->step)),
                          {detail::name_of(*item)},
                          {verdict, {}, tone},
                          HtmlTable::Cell::number(item->error),
                          HtmlTable::Cell::number(call->amplification),
                          {item->message},
                          {detail::shape_of(any)},
                          {dtype}});
    for (const double v :
         {m.cosine, m.max_abs, m.mean_abs, m.rmse, m.euclidean, m.norm_ratio, m.one_thousandth, m.five_thousandth, m.max_ulp})
      table.rows.back().push_back(number(v));
    if (const auto [a, b] = detail::crc_of(*item); crc) table.rows.back().insert(table.rows.back().end(), {{a}, {b}});
  }
  return table;
}

}  // namespace

std::string to_html(const DumpComparison& comparison) {
  HtmlPage page("Comparison of two dumps");
  page.facts({{"A", comparison.a}, {"B", comparison.b}});
  page.paragraph(detail::headline(comparison), !comparison.agrees                                                      ? Tone::Bad
                                               : comparison.lone_steps > static_cast<int64_t>(comparison.steps.size()) ? Tone::Warn
                                                                                                                       : Tone::Good);
  if (const auto& d = comparison.first; d.found) {
    page.heading(d.within_tolerance ? "First difference, within tolerance" : "First divergence");
    page.paragraph(d.sentence + ".", d.within_tolerance ? Tone::Plain : Tone::Warn);
    page.facts({{"Call", d.call},
                {"Layer", d.layer},
                {"Operator or class", d.type},
                {"Direction", d.direction},
                {"Step", std::to_string(d.step)},
                {"Error of the inputs", short_number(d.input_error, 3)},
                {"Error of the outputs", short_number(d.output_error, 3)}});
    for (const auto& text : d.likely) page.paragraph("Likely: " + text + ".");
    for (const auto& text : d.advice) page.paragraph("Try: " + text + ".");
  }
  const auto notes = detail::notes_of(comparison);
  if (!notes.empty()) page.heading("Notes");
  for (const auto& note : notes) page.paragraph(note);
  page.heading("Location of the error");
  constexpr size_t kMostSteps = 3;
  for (size_t i = 0; i < std::min(kMostSteps, comparison.steps.size()); ++i)
    for (const std::string direction : {"forward", "backward", "parameters_grad"})
      if (const auto plot = errors_by_layer(comparison.steps[i], direction, comparison.first); any_error(plot)) page.bars(plot);
  add_curves(comparison, page);
  const auto rows = detail::rows_of(comparison);
  page.histogram(errors_by_size(rows));
  page.heading("All values");
  page.table(table_of(rows));
  return page.str();
}

}  // namespace npu_train
