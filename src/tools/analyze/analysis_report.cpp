#include <algorithm>
#include <map>
#include <set>

#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/analyze/analysis.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

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

Tone tone_of(OperatorSupport support) {
  if (support == OperatorSupport::Unsupported) return Tone::Bad;
  return support == OperatorSupport::CpuFallback || support == OperatorSupport::Custom ? Tone::Warn : Tone::Plain;
}

std::string shapes_text(const OperatorUse& use) {
  return (use.shapes.empty() ? "" : use.shapes.front()) +
         (use.distinct_shapes > 1 ? " and " + std::to_string(use.distinct_shapes - 1) + " more" : "");
}

ReportTable operators_table(const Analysis& analysis) {
  using detail::json_list;
  ReportTable out{.text_rows = 30, .order = "longest first"};
  for (const auto& [use, facts] : analysis.operators)
    out.add({both("operator", use.full_name()), both("phase", use.phase), both("dtype", use.dtype), both("calls", use.calls),
             data("seconds", use.seconds), both("share", "time", share_value(analysis.seconds > 0 ? use.seconds / analysis.seconds : 0)),
             data("flops", use.flops), both("autocast", use.autocast), data("computed_in", use.computed_in()),
             both("support", toned(support_name(facts.support), tone_of(facts.support))), data("composite", facts.composite),
             data("limits", facts.limits), data("listed_dtypes", json_list(facts.dtypes)), data("dynamic_shape", use.dynamic_shape),
             data("host_read", use.host_read), data("distinct_shapes", use.distinct_shapes),
             on_page(both("shapes", {json_list(use.shapes), join(use.shapes, "; ")})), in_text(shown("shapes", shapes_text(use))),
             on_page(both("layers", json_list(use.layers)))});
  return out;
}

// Returns in words who makes a change: "automatic" becomes "automatic (torch_npu)".
std::string shown_done_by(const std::string& done_by) {
  return done_by == "automatic" ? "automatic (torch_npu)" : done_by == "tool" ? "npu_train" : "by hand";
}

ReportTable findings_table(const Analysis& analysis) {
  ReportTable out;
  for (const auto& f : analysis.findings)
    out.add({both("severity", toned(f.severity, tone_of(f.severity))), both("kind", f.kind), both("subject", f.subject),
             both("detail", "observation", f.detail), both("hours", number_value(f.hours, 3)),
             both("done_by", "done by", {f.done_by, shown_done_by(f.done_by)}), both("advice", "action", f.advice), data("calls", f.calls),
             data("places", detail::json_list(f.places))});
  return out;
}

}  // namespace

std::string unsupported_csv(const Analysis& analysis) {
  static const std::set<std::string> kinds = {"unsupported", "custom", "cpu_fallback", "unknown"};
  auto out = csv_row({"operator", "support", "count", "where", "action", "done_by", "hours"});
  for (const auto& f : analysis.findings)
    if (kinds.count(f.kind) != 0)
      out += csv_row({f.subject, f.kind, std::to_string(f.calls), join(f.places, "; "), f.advice, f.done_by, shortest(f.hours)});
  return out;
}

Report report_of(const Analysis& analysis) {
  auto dtypes = Json::object();
  for (const auto& [dtype, n] : analysis.parameter_dtypes) dtypes.set(dtype, n);
  const auto verdict = analysis.verdict();
  Report out("Migration to " + analysis.options.soc, Json::object({{"soc", analysis.options.soc},
                                                                   {"torch", analysis.options.torch},
                                                                   {"verdict", verdict},
                                                                   {"hours", analysis.hours()},
                                                                   {"summary", headline(analysis)},
                                                                   {"parameter_dtypes", std::move(dtypes)}}));
  out.verdict(headline(analysis), verdict == "blocked" ? Tone::Bad : verdict == "feasible" ? Tone::Warn : Tone::Good);
  std::vector<ReportField> facts;
  for (const auto& [name, n] : kinds_by_support(analysis)) facts.push_back(shown(name, n));
  facts.push_back(shown("parameters", dtypes_text(analysis)));
  out.facts(facts, ReportIn::Page);
  out.say(support_summary(analysis), Tone::Plain, ReportIn::Text);
  out.say("parameters: " + dtypes_text(analysis), Tone::Plain, ReportIn::Text);
  out.notes(analysis.notes);
  out.heading("Findings");
  if (analysis.findings.empty()) out.say("nothing was found");
  out.table("findings", findings_table(analysis));
  out.heading("Operators of one step");
  out.table("operators", operators_table(analysis));
  out.say("Support is taken from tables of torch_npu and the vendor's list of APIs; it was not tested on a device", Tone::Plain,
          ReportIn::Page);
  return out;
}

}  // namespace npu_train
