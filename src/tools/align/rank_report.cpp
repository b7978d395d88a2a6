// Reports the result of compare_ranks() as text, JSON and a page.
#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/rank_comparison.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

constexpr size_t kRowsOfLosses = 20, kMostRanks = 8;

std::string steps_of(const RankComparison& c) {
  return std::to_string(c.ranks.size()) + " ranks, " + std::to_string(c.steps.size()) + (c.steps.size() == 1 ? " step" : " steps") + " (" +
         std::to_string(c.steps.front()) + (c.steps.size() == 1 ? "" : " to " + std::to_string(c.steps.back())) + ")";
}

std::string verdict(const RankComparison& c) {
  if (c.agrees())
    return "the ranks agree: " + steps_of(c) +
           "; weights, reduced gradients, clip factor and learning rate have equal bits, and sums over ranks are right";
  const auto& first = c.faults.front();
  return "the ranks part at step " + std::to_string(first.step) + ", rank " + std::to_string(first.rank) +
         (first.layer.empty() ? "" : ", layer " + first.layer) + ": " + first.kind + " (" + steps_of(c) + ")";
}

std::string tolerance(const RankLimits& limits) {
  return "alike: the means of a rank and of the others differ by at most " + short_number(limits.errors, 3) +
         " standard errors (more for few values), or by less than " + percentage(limits.input) +
         " of a sample's standard deviation (inputs), " + percentage(limits.loss) + " (loss), " + percentage(limits.gradient) +
         " (norm of a rank's own gradients)";
}

// Hints for ranks that agree with each other, but not with a run on one device.
const std::vector<std::string>& if_it_still_differs() {
  static const std::vector<std::string> advice = {
      "the loss of a rank is that of its own batches: compare means over all ranks",
      "more ranks make the global batch larger: trainer.lr_scaling=linear or sqrt adapts the learning rate, and lr_scheduler.warmup_steps "
      "lets it rise slowly",
      "equal bits with one process need trainer.accumulate_grad_batches times the number of ranks there, deterministic=true and "
      "rng=portable"};
  return advice;
}

std::string text_of(const RankFault& f) {
  return f.text +
         (f.more_steps == 0 ? "" : "; also in " + std::to_string(f.more_steps) + " later " + (f.more_steps == 1 ? "step" : "steps"));
}

double at(const std::map<int64_t, double>& curve, int64_t step) {
  const auto found = curve.find(step);
  return found == curve.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

double mean_of(const std::map<int64_t, double>& curve) {
  double sum = 0;
  for (const auto& [step, value] : curve) sum += value;
  return curve.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(curve.size());
}

ReportTable ranks_table(const RankComparison& c) {
  ReportTable out{.title = "Ranks"};
  for (const auto& r : c.ranks)
    out.add({shown("rank", r.rank), shown("host", r.host), shown("samples", r.samples), shown("input mean", unless_nan(r.input_mean)),
             shown("input std", unless_nan(r.input_std)), shown("mean loss", unless_nan(mean_of(r.loss))),
             shown("own gradient norm", unless_nan(mean_of(r.gradient)))});
  return out;
}

// Returns one row per step with the loss of each rank. Ranks for which there is no column are shown only in the plots and in the JSON
// document.
ReportTable losses_table(const RankComparison& c, size_t ranks) {
  ReportTable out{.title = "Losses", .text_rows = kRowsOfLosses};
  for (const auto step : c.steps) {
    std::vector<ReportField> row{shown("step", {step, std::to_string(step)})};
    for (size_t r = 0; r < ranks; ++r)
      row.push_back(shown("rank " + std::to_string(c.ranks[r].rank), unless_nan(at(c.ranks[r].loss, step))));
    out.add(std::move(row));
  }
  return out;
}

Json curve_json(const RankComparison& c, const std::map<int64_t, double>& curve) {
  auto out = Json::array();
  for (const auto step : c.steps) {
    const double value = at(curve, step);
    out.push_back(std::isnan(value) && curve.count(step) == 0 ? Json() : Json(value));
  }
  return out;
}

LinePlot plot_of(const RankComparison& c, const char* title, std::map<int64_t, double> RankSummary::*curve) {
  LinePlot plot{.title = title, .x_label = "step", .y_label = title};
  for (const auto& r : c.ranks) {
    LinePlot::Series series{.name = "rank " + std::to_string(r.rank)};
    for (const auto& [step, value] : r.*curve) {
      series.x.push_back(static_cast<double>(step));
      series.y.push_back(value);
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace

Report report_of(const RankComparison& c) {
  auto ranks = Json::array();
  for (const auto& r : c.ranks)
    ranks.push_back(Json::object({{"rank", r.rank},
                                  {"host", r.host},
                                  {"samples", r.samples},
                                  {"input_mean", r.input_mean},
                                  {"input_std", r.input_std},
                                  {"loss", curve_json(c, r.loss)},
                                  {"gradient_norm", curve_json(c, r.gradient)}}));
  Report out("Comparison of ranks", Json::object({{"agrees", c.agrees()},
                                                  {"verdict", verdict(c)},
                                                  {"path", c.path},
                                                  {"complete", c.complete},
                                                  {"steps", detail::json_list(c.steps)},
                                                  {"ranks", std::move(ranks)},
                                                  {"tolerance", tolerance(c.limits)}}));
  out.fit_to(100);
  out.facts({shown("dump", c.path), shown("ranks", c.ranks.size()), shown("steps", c.steps.size())}, ReportIn::Page);
  out.say(verdict(c), c.agrees() ? Tone::Good : Tone::Bad);
  ReportTable faults{.layout = ReportTable::Layout::List, .apart = true};
  for (const auto& f : c.faults)
    faults.add({in_text(shown("mark", "")), in_text(shown("place", "step " + std::to_string(f.step) + ", rank " + std::to_string(f.rank))),
                on_page(both("step", f.step)), on_page(both("rank", f.rank)), on_page(both("kind", toned(f.kind, Tone::Bad))),
                on_page(both("layer", f.layer)), data("text", f.text), shown("fact", text_of(f)), both("advice", "try", f.advice),
                data("more_steps", f.more_steps)});
  out.table("faults", std::move(faults));
  out.plot(plot_of(c, "loss", &RankSummary::loss));
  out.plot(plot_of(c, "norm of a rank's own gradients", &RankSummary::gradient));
  out.table("", ranks_table(c));
  const auto columns = std::min(c.ranks.size(), kMostRanks);
  out.table("", losses_table(c, columns), ReportIn::Text);
  if (columns < c.ranks.size())
    out.say("... " + std::to_string(c.ranks.size() - columns) + " more ranks: --json contains all", Tone::Plain, ReportIn::Text);
  out.say(tolerance(c.limits));
  out.notes(c.notes);
  if (c.agrees()) {
    out.heading("If the result still differs from that of one device", ReportIn::All);
    for (const auto& text : if_it_still_differs()) out.say("- " + text);
  }
  return out;
}

}  // namespace npu_train
