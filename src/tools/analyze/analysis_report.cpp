#include <algorithm>
#include <map>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json_texts.hpp"
#include "npu_train/tools/analyze/analysis.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"

namespace npu_train {
namespace {

std::string share_of(const Analysis& analysis, const OperatorUse& use) {
  return short_number(analysis.seconds > 0 ? 100 * use.seconds / analysis.seconds : 0, 3) + " %";
}

std::string hours_text(double hours) { return short_number(hours, 3) + " h"; }

std::map<std::string, int64_t> kinds_by_support(const Analysis& analysis) {
  std::map<std::string, int64_t> out;
  for (const auto& op : analysis.operators) ++out[support_name(op.facts.support)];
  return out;
}

std::string support_summary(const Analysis& analysis) {
  std::vector<std::string> parts;
  for (const auto& [name, n] : kinds_by_support(analysis)) parts.push_back(std::to_string(n) + " " + name);
  return std::to_string(analysis.operators.size()) + " kinds of operators: " + join(parts);
}

std::string dtypes_text(const Analysis& analysis) {
  std::vector<std::string> parts;
  for (const auto& [dtype, n] : analysis.parameter_dtypes) parts.push_back(std::to_string(n) + " " + dtype);
  return join(parts);
}

std::string headline(const Analysis& analysis) {
  const auto verdict = analysis.verdict();
  const std::string what = verdict == "blocked"    ? "blocked: parts must be replaced before it can run"
                           : verdict == "feasible" ? "feasible, with changes"
                                                   : "ready to try";
  return analysis.options.soc + ", torch_npu " + analysis.options.torch + ": " + what + "; about " + hours_text(analysis.hours()) +
         " of work";
}

Tone tone_of(const std::string& severity) { return severity == "blocks" ? Tone::Bad : severity == "change" ? Tone::Warn : Tone::Plain; }

}  // namespace

std::string to_text(const Analysis& analysis, size_t most, size_t width) {
  TextTable table({"operator", "phase", "dtype", "calls", "time", "autocast", "support", "shapes"});
  size_t shown = 0;
  for (const auto& [use, facts] : analysis.operators) {
    if (most > 0 && shown == most) break;
    ++shown;
    table.add_row({use.full_name(), use.phase, use.dtype, std::to_string(use.calls), share_of(analysis, use), use.autocast,
                   support_name(facts.support),
                   (use.shapes.empty() ? "" : use.shapes.front()) +
                       (use.distinct_shapes > 1 ? " and " + std::to_string(use.distinct_shapes - 1) + " more" : "")});
  }
  std::string out = headline(analysis) + "\n\n" + table.str(width);
  if (shown < analysis.operators.size())
    out += "(" + std::to_string(shown) + " of " + std::to_string(analysis.operators.size()) + " kinds, longest first)\n";
  out += "\n" + support_summary(analysis) + "\nparameters: " + dtypes_text(analysis) + "\n";
  for (const auto& note : analysis.notes) out += "note: " + note + "\n";
  if (!analysis.findings.empty()) {
    TextTable findings({"", "kind", "subject", "observation", "hours", "action"});
    for (const auto& f : analysis.findings) findings.add_row({f.severity, f.kind, f.subject, f.detail, short_number(f.hours, 3), f.advice});
    out += "\n" + findings.str(width);
  }
  return out;
}

Json to_json(const Analysis& analysis) {
  auto operators = Json::array(), findings = Json::array(), dtypes = Json::object();
  for (const auto& [use, facts] : analysis.operators)
    operators.push_back(Json::object({{"operator", use.full_name()},
                                      {"phase", use.phase},
                                      {"dtype", use.dtype},
                                      {"calls", use.calls},
                                      {"seconds", use.seconds},
                                      {"share", analysis.seconds > 0 ? use.seconds / analysis.seconds : 0.0},
                                      {"flops", use.flops},
                                      {"autocast", use.autocast},
                                      {"computed_in", use.computed_in()},
                                      {"support", support_name(facts.support)},
                                      {"composite", facts.composite},
                                      {"limits", facts.limits},
                                      {"listed_dtypes", detail::json_texts(facts.dtypes)},
                                      {"dynamic_shape", use.dynamic_shape},
                                      {"host_read", use.host_read},
                                      {"distinct_shapes", use.distinct_shapes},
                                      {"shapes", detail::json_texts(use.shapes)},
                                      {"layers", detail::json_texts(use.layers)}}));
  for (const auto& f : analysis.findings)
    findings.push_back(Json::object({{"kind", f.kind},
                                     {"severity", f.severity},
                                     {"subject", f.subject},
                                     {"detail", f.detail},
                                     {"advice", f.advice},
                                     {"hours", f.hours}}));
  for (const auto& [dtype, n] : analysis.parameter_dtypes) dtypes.set(dtype, n);
  return Json::object({{"soc", analysis.options.soc},
                       {"torch", analysis.options.torch},
                       {"verdict", analysis.verdict()},
                       {"hours", analysis.hours()},
                       {"summary", headline(analysis)},
                       {"parameter_dtypes", std::move(dtypes)},
                       {"notes", detail::json_texts(analysis.notes)},
                       {"findings", std::move(findings)},
                       {"operators", std::move(operators)}});
}

std::string to_html(const Analysis& analysis) {
  HtmlPage page("Migration to " + analysis.options.soc);
  const auto verdict = analysis.verdict();
  page.paragraph(headline(analysis) + ".", verdict == "blocked" ? Tone::Bad : verdict == "feasible" ? Tone::Warn : Tone::Good);
  std::vector<HtmlPage::Fact> facts;
  for (const auto& [name, n] : kinds_by_support(analysis)) facts.push_back({name, std::to_string(n)});
  facts.push_back({"parameters", dtypes_text(analysis)});
  page.facts(facts);
  for (const auto& note : analysis.notes) page.paragraph(note);
  page.heading("Findings");
  HtmlTable findings{.columns = {{"Severity"}, {"Kind"}, {"Subject"}, {"Observation"}, {"Hours", true}, {"Action"}}};
  for (const auto& f : analysis.findings)
    findings.rows.push_back({{f.severity, static_cast<double>(findings.rows.size()), tone_of(f.severity)},
                             {f.kind},
                             {f.subject},
                             {f.detail},
                             HtmlTable::Cell::number(f.hours),
                             {f.advice}});
  page.table(findings);
  page.heading("Operators of one step");
  HtmlTable table{
      .columns = {
          {"Operator"}, {"Phase"}, {"Dtype"}, {"Calls", true}, {"Time %", true}, {"Autocast"}, {"Support"}, {"Shapes"}, {"Layers"}}};
  for (const auto& [use, op] : analysis.operators) {
    const bool bad = op.support == OperatorSupport::Unsupported,
               warn = op.support == OperatorSupport::CpuFallback || op.support == OperatorSupport::Custom;
    table.rows.push_back({{use.full_name()},
                          {use.phase},
                          {use.dtype},
                          HtmlTable::Cell::number(static_cast<double>(use.calls)),
                          HtmlTable::Cell::number(analysis.seconds > 0 ? 100 * use.seconds / analysis.seconds : 0),
                          {use.autocast},
                          {support_name(op.support),
                           {},
                           bad    ? Tone::Bad
                           : warn ? Tone::Warn
                                  : Tone::Plain},
                          {join(use.shapes, "; ")},
                          {join(use.layers)}});
  }
  page.table(table);
  page.paragraph("Support is taken from tables of torch_npu and the vendor's list of APIs; it was not tested on a device.");
  return page.str();
}

}  // namespace npu_train
