#include "npu_train/tools/align/compare.hpp"

#include <algorithm>
#include <sstream>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/text_table.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace {

using detail::json_list;
using detail::Row;
using detail::visible_text;
using Kind = ItemComparison::Kind;

void add_divergence(const Divergence& d, Report& out) {
  if (!d.found) return;
  const bool unread = d.cause == Divergence::Cause::Unreadable;
  const char* what = unread ? "not compared" : d.within_tolerance ? "first difference (within tolerance)" : "first divergence";
  out.heading(d.within_tolerance ? "First difference, within tolerance" : "First divergence");
  out.remarks(what, {visible_text(d.sentence)}, d.within_tolerance ? Tone::Plain : Tone::Warn);
  out.say("call: " + visible_text(d.call), Tone::Plain, ReportIn::Text);
  out.facts({shown("Call", d.call), shown("Layer", d.layer), shown("Operator or class", d.type), shown("Direction", d.direction),
             shown("Step", d.step), shown("Error of the inputs", number_value(d.input_error, 3)),
             shown("Error of the outputs", number_value(d.output_error, 3))},
            ReportIn::Page);
  out.remarks("likely", d.likely);
  out.remarks("try", d.advice);
}

// A table of numbers, and the texts that may not fit into its lines.
struct TextRows {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> cells;
  std::vector<std::pair<std::string, std::string>> names;  // name and message
};

// Removes columns that are empty in every row.
void drop_empty_columns(TextRows& rows) {
  for (size_t i = rows.columns.size(); i-- > 0;) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    if (std::any_of(rows.cells.begin(), rows.cells.end(), [&](const auto& row) { return !row[i].empty() && row[i] != "-"; })) continue;
    rows.columns.erase(rows.columns.begin() + at);
    for (auto& row : rows.cells) row.erase(row.begin() + at);
  }
}

std::string cosine_of(const ItemComparison& item) { return item.kind == Kind::Tensor ? short_number(item.metrics.cosine, 6) : "-"; }
std::string max_abs_of(const ItemComparison& item) { return item.kind == Kind::Tensor ? short_number(item.metrics.max_abs, 3) : "-"; }

// Formats the table with complete names: after the numbers if all lines are short enough, otherwise on separate lines.
std::string table_text(const std::vector<Row>& list, size_t width) {
  TextRows rows{{"verdict", "step", "error", "max abs", "cosine", "amplif.", "dtype", "shape"}, {}, {}};
  for (const auto& [step, call, item] : list) {
    const auto& any = item->item_a.is_tensor() ? item->item_a : item->item_b;
    const bool measured = item->kind != Kind::OneSided && item->kind != Kind::NotCompared;
    rows.cells.push_back({detail::verdict_of(*item), std::to_string(step->step), measured ? short_number(item->error, 3) : "-",
                          max_abs_of(*item), cosine_of(*item), measured ? short_number(call->amplification, 3) : "-",
                          detail::short_dtype(any), detail::shape_of(any)});
    rows.names.emplace_back(detail::name_of(*item), item->message);
  }
  drop_empty_columns(rows);
  const auto whole = [&](bool with_names) {
    auto columns = rows.columns;
    if (with_names) columns.insert(columns.end(), {"value", "message"});
    TextTable table(columns);
    for (size_t i = 0; i < rows.cells.size(); ++i) {
      auto cells = rows.cells[i];
      if (with_names) cells.insert(cells.end(), {rows.names[i].first, rows.names[i].second});
      table.add_row(std::move(cells));
    }
    return table.str();
  };
  const auto fits = [&](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (detail::code_points(line) > width) return false;
    return true;
  };
  const auto one_line = whole(true);
  if (width == 0 || fits(one_line)) return one_line;
  std::istringstream lines(whole(false));
  std::string out;
  size_t row = 0;
  for (std::string line; std::getline(lines, line); ++row) {
    out += line + "\n";
    if (row < 2) continue;  // the two lines of the table's head
    const auto& [name, message] = rows.names[row - 2];
    out += "  " + visible_text(name) + "\n" + (message.empty() ? "" : "  " + visible_text(message) + "\n");
  }
  return out;
}

Json metrics_json(const PairMetrics& m) {
  return Json::object({{"cosine", m.cosine},
                       {"euclidean", m.euclidean},
                       {"max_abs", m.max_abs},
                       {"mean_abs", m.mean_abs},
                       {"max_relative", m.max_relative},
                       {"one_thousandth", m.one_thousandth},
                       {"five_thousandth", m.five_thousandth},
                       {"rmse", m.rmse},
                       {"max_ulp", m.max_ulp},
                       {"mean_ulp", m.mean_ulp},
                       {"norm_ratio", m.norm_ratio},
                       {"relative_norm", m.relative_norm},
                       {"nonfinite_mismatch", m.nonfinite_mismatch},
                       {"identical", m.identical}});
}

Json item_json(const ItemComparison& item) {
  auto out = Json::object({{"a", item.a},
                           {"b", item.b},
                           {"side", item.side},
                           {"kind", detail::kind_name(item.kind)},
                           {"error", item.error},
                           {"verdict", detail::verdict_of(item)}});
  if (item.item_a.is_tensor()) out.set("shape", detail::shape_of(item.item_a));
  if (item.item_a.is_tensor() && item.item_b.is_tensor()) out.set("dtype", json_list({item.item_a.dtype, item.item_b.dtype}));
  if (!item.message.empty()) out.set("message", item.message);
  if (item.kind == Kind::Tensor) out.set("metrics", metrics_json(item.metrics));
  if (const auto [a, b] = detail::crc_of(item); !a.empty() || !b.empty()) out.set("crc32", json_list({a, b}));
  if (item.reference_error_a >= 0) {
    out.set("reference_error_a", item.reference_error_a);
    out.set("reference_error_b", item.reference_error_b);
  }
  return out;
}

Json divergence_json(const Divergence& d) {
  if (!d.found) return {};
  return Json::object({{"step", d.step},
                       {"rank", d.rank},
                       {"call", d.call},
                       {"layer", d.layer},
                       {"layer_b", d.layer_b.empty() ? d.layer : d.layer_b},
                       {"type", d.type},
                       {"direction", d.direction},
                       {"cause", detail::cause_name(d.cause)},
                       {"input_error", d.input_error},
                       {"output_error", d.output_error},
                       {"within_tolerance", d.within_tolerance},
                       {"sentence", d.sentence},
                       {"likely", json_list(d.likely)},
                       {"advice", json_list(d.advice)}});
}

// Returns the worst rows as text; equal values are omitted.
std::string worst_text(const DumpComparison& comparison, size_t most, size_t width) {
  auto rows = detail::worst_first(detail::rows_of(comparison));
  const auto all = rows.size();
  std::erase_if(rows, [](const Row& r) { return !r.item->failed && r.item->error == 0 && r.item->kind != Kind::OneSided; });
  if (most > 0 && rows.size() > most) rows.resize(most);
  if (rows.empty()) return "";
  const auto left = "(" + std::to_string(rows.size()) + " of " + with_commas(static_cast<int64_t>(all)) + " rows, worst first)\n";
  return table_text(rows, width) + (rows.size() < all ? left : "");
}

Json facts_json(const std::map<std::string, std::string>& map) {
  auto out = Json::object();
  for (const auto& [key, value] : map) out.set(key, value);
  return out;
}

Json steps_json(const DumpComparison& comparison) {
  auto steps = Json::array();
  for (const auto& step : comparison.steps) {
    auto calls = Json::array();
    for (const auto& call : step.calls) {
      auto items = Json::array();
      for (const auto& item : call.items) items.push_back(item_json(item));
      calls.push_back(Json::object({{"a", call.a},
                                    {"b", call.b},
                                    {"layer", call.layer},
                                    {"type", call.type},
                                    {"direction", call.direction},
                                    {"input_error", call.input_error},
                                    {"parameter_error", call.parameter_error},
                                    {"output_error", call.output_error},
                                    {"amplification", call.amplification},
                                    {"verdict", call.failed ? "differs" : "agrees"},
                                    {"items", std::move(items)}}));
    }
    steps.push_back(Json::object({{"step", step.step},
                                  {"rank", step.rank},
                                  {"compared", step.compared},
                                  {"failed", step.failed},
                                  {"unproven", step.unproven},
                                  {"rounding", step.rounding},
                                  {"not_judged", step.not_judged},
                                  {"one_sided", step.one_sided},
                                  {"skipped", step.skipped},
                                  {"not_compared", step.not_compared},
                                  {"complete_a", step.complete_a},
                                  {"complete_b", step.complete_b},
                                  {"calls", std::move(calls)}}));
  }
  return steps;
}

}  // namespace

Report report_of(const DumpComparison& comparison) {
  const auto summary = detail::headline(comparison);
  Report out("Comparison of two dumps", Json::object({{"a", comparison.a},
                                                      {"b", comparison.b},
                                                      {"reference", comparison.reference},
                                                      {"agrees", comparison.agrees},
                                                      {"complete", comparison.complete && !comparison.sampled},
                                                      {"judged", comparison.judged()},
                                                      {"summary", summary},
                                                      {"first_divergence", divergence_json(comparison.first)},
                                                      {"facts_a", facts_json(comparison.facts_a)},
                                                      {"facts_b", facts_json(comparison.facts_b)}}));
  out.facts({shown("A", comparison.a), shown("B", comparison.b)}, ReportIn::Page);
  out.say(summary, !comparison.agrees                                                      ? Tone::Bad
                   : comparison.lone_steps > static_cast<int64_t>(comparison.steps.size()) ? Tone::Warn
                                                                                           : Tone::Good);
  for (const auto& [label, path] : {std::pair{"A", &comparison.a}, {"B", &comparison.b}, {"reference", &comparison.reference}})
    if (!path->empty()) out.say(std::string(label) + ": " + visible_text(*path), Tone::Plain, ReportIn::Text);
  add_divergence(comparison.first, out);
  out.notes(detail::notes_of(comparison));
  out.heading("Location of the error");
  detail::add_plots(out, comparison);
  out.late_text([&](size_t most, size_t width) { return worst_text(comparison, most, width); });
  out.heading("All values");
  out.late_table([&](size_t /*most*/) { return detail::page_table(comparison); }, ReportIn::Page);
  out.late_data("steps", [&] { return steps_json(comparison); });
  return out;
}

}  // namespace npu_train
