// The plots and the table that the page of a comparison shows.
#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace {

using Kind = ItemComparison::Kind;

bool compared(const CallComparison& call) { return !call.a.empty() && !call.b.empty(); }

// Plots the errors of the outputs of all calls of one direction, in call order.
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
void add_curves(const DumpComparison& comparison, Report& out) {
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
  if (!loss.series[0].x.empty()) out.plot(std::move(loss));
  if (!rate.series[0].x.empty()) out.plot(std::move(rate));
}

bool any_crc(const std::vector<detail::Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const auto& row) {
    const auto [a, b] = detail::crc_of(*row.item);
    return !a.empty() || !b.empty();
  });
}

}  // namespace

void detail::add_plots(Report& out, const DumpComparison& comparison) {
  constexpr size_t kMostSteps = 3;
  for (size_t i = 0; i < std::min(kMostSteps, comparison.steps.size()); ++i)
    for (const std::string direction : {"forward", "backward", "parameters_grad"})
      if (auto plot = errors_by_layer(comparison.steps[i], direction, comparison.first); any_error(plot)) out.plot(std::move(plot));
  add_curves(comparison, out);
  out.plot(errors_by_size(rows_of(comparison)));
}

// The most important columns come first, since the table is wider than a page and scrolls.
ReportTable detail::page_table(const DumpComparison& comparison) {
  ReportTable out{.title = "Values, worst first"};
  const auto rows = rows_of(comparison);
  const bool crc = any_crc(rows);
  for (const auto& [step, call, item] : worst_first(rows)) {
    const auto& any = item->item_a.is_tensor() ? item->item_a : item->item_b;
    auto dtype = short_dtype(any);
    if (item->item_b.is_tensor() && item->item_b.dtype != any.dtype) dtype += " / " + short_dtype(item->item_b);
    const auto verdict = verdict_of(*item);
    const auto tone = item->failed ? Tone::Bad : verdict == "agrees" ? Tone::Good : Tone::Warn;
    std::vector<ReportField> row = {shown("Step", step->step),
                                    shown("Value", name_of(*item)),
                                    shown("Verdict", toned(verdict, tone)),
                                    shown("Error", item->error),
                                    shown("Amplification", call->amplification),
                                    shown("Message", item->message),
                                    shown("Shape", shape_of(any)),
                                    shown("Dtype", dtype)};
    const auto& m = item->metrics;
    for (const auto& [name, value] : {std::pair{"Cosine", m.cosine},
                                      {"Max abs", m.max_abs},
                                      {"Mean abs", m.mean_abs},
                                      {"RMSE", m.rmse},
                                      {"Euclidean", m.euclidean},
                                      {"Norm A / B", m.norm_ratio},
                                      {"Within 1/1000", m.one_thousandth},
                                      {"Within 5/1000", m.five_thousandth},
                                      {"Max ULP", m.max_ulp}})
      row.push_back(shown(name, item->kind == Kind::Tensor ? ReportValue(value) : ReportValue(Json())));
    if (const auto [a, b] = crc_of(*item); crc) row.insert(row.end(), {shown("CRC-32 A", a), shown("CRC-32 B", b)});
    out.add(std::move(row));
  }
  return out;
}

}  // namespace npu_train
