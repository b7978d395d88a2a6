// compare_ranks() as text, JSON and a page.
#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/core/text.hpp"
#include "npu_train/core/wrapped.hpp"
#include "npu_train/io/json_texts.hpp"
#include "npu_train/tools/align/rank_comparison.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"

namespace npu_train {
namespace {

constexpr size_t kWidth = 100;

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
  const auto percent = [](double part) { return short_number(100 * part, 3) + " %"; };
  return "alike: the means of a rank and of the others differ by at most " + short_number(limits.errors, 3) +
         " standard errors (more for few values), or by less than " + percent(limits.input) +
         " of a sample's standard deviation (inputs), " + percent(limits.loss) + " (loss), " + percent(limits.gradient) +
         " (norm of a rank's own gradients)";
}

// Hints for ranks that agree with each other but not with a run on one device.
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

std::string number_or_dash(double value) { return std::isnan(value) ? "-" : short_number(value); }

std::string ranks_table(const RankComparison& c, size_t width) {
  TextTable table({"rank", "host", "samples", "input mean", "input std", "mean loss", "own gradient norm"});
  for (const auto& r : c.ranks)
    table.add_row({std::to_string(r.rank), r.host, std::to_string(r.samples), number_or_dash(r.input_mean), number_or_dash(r.input_std),
                   number_or_dash(mean_of(r.loss)), number_or_dash(mean_of(r.gradient))});
  return table.str(width);
}

// One row per step with the loss of each rank. Ranks beyond the last column are only in the JSON document.
std::string losses_table(const RankComparison& c, size_t rows, size_t width) {
  constexpr size_t kMostRanks = 8;
  std::vector<std::string> head{"step"};
  const auto shown = std::min(c.ranks.size(), kMostRanks);
  for (size_t r = 0; r < shown; ++r) head.push_back("loss of rank " + std::to_string(c.ranks[r].rank));
  TextTable table(head);
  const auto count = rows == 0 ? c.steps.size() : std::min(rows, c.steps.size());
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> cells{std::to_string(c.steps[i])};
    for (size_t r = 0; r < shown; ++r) cells.push_back(number_or_dash(at(c.ranks[r].loss, c.steps[i])));
    table.add_row(cells);
  }
  auto out = table.str(width);
  if (count < c.steps.size()) out += "... " + std::to_string(c.steps.size() - count) + " more steps: --rows 0 shows all\n";
  if (shown < c.ranks.size()) out += "... " + std::to_string(c.ranks.size() - shown) + " more ranks: --json contains all\n";
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

std::string to_text(const RankComparison& c, size_t rows, size_t width) {
  const size_t wide = width == 0 ? kWidth : width;
  std::string out = wrapped(verdict(c), "", "  ", wide);
  for (const auto& f : c.faults) {
    out += "\n" + wrapped(text_of(f), "step " + std::to_string(f.step) + ", rank " + std::to_string(f.rank) + ": ", "  ", wide);
    out += wrapped(f.advice, "  try: ", "       ", wide);
  }
  out += "\n" + ranks_table(c, wide) + "\n" + losses_table(c, rows, wide);
  out += "\n" + wrapped(tolerance(c.limits), "", "  ", wide);
  for (const auto& note : c.notes) out += wrapped(note, "note: ", "  ", wide);
  if (!c.agrees()) return out;
  out += "\nif the result still differs from that of one device:\n";
  for (const auto& advice : if_it_still_differs()) out += wrapped(advice, "  - ", "    ", wide);
  return out;
}

Json to_json(const RankComparison& c) {
  auto faults = Json::array(), ranks = Json::array(), steps = Json::array();
  for (const auto& f : c.faults)
    faults.push_back(Json::object({{"step", f.step},
                                   {"rank", f.rank},
                                   {"kind", f.kind},
                                   {"layer", f.layer},
                                   {"text", f.text},
                                   {"advice", f.advice},
                                   {"more_steps", f.more_steps}}));
  for (const auto& r : c.ranks)
    ranks.push_back(Json::object({{"rank", r.rank},
                                  {"host", r.host},
                                  {"samples", r.samples},
                                  {"input_mean", r.input_mean},
                                  {"input_std", r.input_std},
                                  {"loss", curve_json(c, r.loss)},
                                  {"gradient_norm", curve_json(c, r.gradient)}}));
  for (const auto step : c.steps) steps.push_back(step);
  return Json::object({{"agrees", c.agrees()},
                       {"verdict", verdict(c)},
                       {"path", c.path},
                       {"complete", c.complete},
                       {"steps", steps},
                       {"faults", faults},
                       {"ranks", ranks},
                       {"tolerance", tolerance(c.limits)},
                       {"notes", detail::json_texts(c.notes)}});
}

std::string to_html(const RankComparison& c) {
  HtmlPage page("Comparison of ranks");
  page.facts({{"dump", c.path}, {"ranks", std::to_string(c.ranks.size())}, {"steps", std::to_string(c.steps.size())}});
  page.paragraph(verdict(c) + ".", c.agrees() ? Tone::Good : Tone::Bad);
  HtmlTable faults{.columns = {{"step", true}, {"rank", true}, {"kind"}, {"layer"}, {"fact"}, {"try"}}};
  for (const auto& f : c.faults)
    faults.rows.push_back(
        {{std::to_string(f.step)}, {std::to_string(f.rank)}, {f.kind, {}, Tone::Bad}, {f.layer}, {text_of(f)}, {f.advice}});
  if (!c.agrees()) page.table(faults);
  page.plot(plot_of(c, "loss", &RankSummary::loss));
  page.plot(plot_of(c, "norm of a rank's own gradients", &RankSummary::gradient));
  HtmlTable ranks{.columns = {{"rank", true}, {"host"}, {"samples", true}, {"input mean", true}, {"input std", true}}};
  for (const auto& r : c.ranks)
    ranks.rows.push_back({{std::to_string(r.rank)},
                          {r.host},
                          {std::to_string(r.samples)},
                          HtmlTable::Cell::number(r.input_mean),
                          HtmlTable::Cell::number(r.input_std)});
  page.table(ranks);
  page.paragraph(tolerance(c.limits) + ".");
  for (const auto& note : c.notes) page.paragraph("Note: " + note + ".");
  if (c.agrees())
    for (const auto& advice : if_it_still_differs()) page.paragraph("If the result still differs from that of one device: " + advice + ".");
  return page.str();
}

}  // namespace npu_train
