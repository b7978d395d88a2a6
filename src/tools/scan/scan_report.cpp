#include "npu_train/tools/scan/source_scan.hpp"

#include <algorithm>
#include <map>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/scan/counted.hpp"

namespace npu_train {

using namespace detail::scan;

namespace {

// Names the blocking rules with the most hours.
std::string what_blocks(const SourceScan& scan) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> titles;
  for (const auto& rule : scan.rules)
    if (rule.severity == Severity::Blocks) titles.push_back(rule.title);
  return detail::first_few(titles, kNamed);
}

}  // namespace

std::string headline(const SourceScan& scan) {
  std::string out = to_string(scan.verdict);
  if (const auto by = what_blocks(scan); !by.empty()) out += " by " + by;
  out += ": " + counted(scan.places, "place") + " in " + counted(scan.files, "source file") + " (" + with_commas(scan.lines) + " lines), " +
         short_number(scan.hours) + " h of work";
  if (scan.hours_mechanical > 0) out += ", of which a rewrite saves " + short_number(scan.hours_mechanical) + " h";
  return out;
}

namespace {

// Explains what it means that the project already supports NPUs.
std::string serves_npu_text(const SourceScan& scan) {
  int64_t left = 0;
  for (const auto& rule : scan.rules)
    if (rule.id == "serves-npu") left = rule.places;
  std::string out = "The project already supports NPUs (" + scan.serves_npu +
                    "): its authors have dealt with missing operators and libraries, which are listed without hours";
  if (left > 0) out += "; " + counted(left, "place") + " with code for both CUDA and NPUs " + (left == 1 ? "is" : "are") + " unchanged";
  return out + ".";
}

// Sorts by severity, then by file and line.
std::vector<const SourceFinding*> worst_first(const SourceScan& scan) {
  std::vector<const SourceFinding*> out;
  for (const auto& finding : scan.findings) out.push_back(&finding);
  std::stable_sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->severity > b->severity; });
  return out;
}

Tone tone_of(Severity severity) { return severity == Severity::Blocks ? Tone::Bad : severity == Severity::Note ? Tone::Plain : Tone::Warn; }

Tone tone_of(LibraryState state) {
  return state == LibraryState::Works ? Tone::Good : state == LibraryState::None ? Tone::Bad : Tone::Warn;
}

constexpr size_t kMostPlaces = 20'000;

// Returns how many places each side changes (torch_npu, the tool, a person); "" without places.
std::string done_by_text(const SourceScan& scan) {
  static const std::map<DoneBy, std::string> names = {{DoneBy::Nobody, "nothing to do"},
                                                      {DoneBy::Automatic, "torch_npu's transfer_to_npu does it"},
                                                      {DoneBy::Tool, "only a rewrite does it"},
                                                      {DoneBy::Hand, "by hand"}};
  std::vector<std::string> parts;
  for (const auto& [who, places] : scan.done_by) parts.push_back(names.at(who) + ": " + counted(places, "place"));
  return join(parts, "; ");
}

ReportValue severity_value(Severity severity) { return {to_string(severity), to_string(severity), tone_of(severity)}; }

ReportTable libraries_table(const SourceScan& scan) {
  ReportTable out{.title = "Third-party libraries"};
  for (const auto& l : scan.libraries)
    out.add({both("name", "Library", l.name), both("state", "On NPUs", toned(to_string(l.state), tone_of(l.state))),
             both("places", "Places", l.places), both("hours", "Hours", l.hours), both("first_place", "First place", l.first_place),
             both("replacement", "Replacement", l.replacement), both("advice", "Advice", l.advice)});
  return out;
}

// Returns a table of the rules. Without `libraries`, omits the rules of libraries, since the text has a separate table of libraries.
ReportTable rules_table(const SourceScan& scan, bool libraries) {
  ReportTable out{.title = "Actions", .layout = ReportTable::Layout::List, .apart = true};
  for (const auto& r : scan.rules) {
    if (!libraries && r.id.starts_with("library:")) continue;
    const auto size = counted(r.places, "place") + " in " + counted(r.files, "file") + ", " + short_number(r.hours) + " h" +
                      (r.mechanical == 0          ? ""
                       : r.mechanical == r.places ? " (a rewrite does it)"
                                                  : " (a rewrite does " + with_commas(r.mechanical) + ")");
    out.add({both("severity", "Severity", severity_value(r.severity)), both("id", "Rule", r.id), on_page(both("title", "Title", r.title)),
             in_text(shown("Size", r.title + ", " + size)), both("why", "Reason", r.why), both("advice", "Action", r.advice),
             on_page(both("places", "Places", r.places)), on_page(both("files", "Files", r.files)),
             on_page(both("mechanical", "By a rewrite", r.mechanical)), on_page(both("hours", "Hours", r.hours)),
             data("hours_mechanical", r.hours_mechanical)});
  }
  return out;
}

ReportTable places_table(const SourceScan& scan, size_t most) {
  ReportTable out{.title = "Places", .all = scan.findings.size(), .order = "worst first"};
  for (const auto* f : worst_first(scan)) {
    if (out.rows.size() == most) break;
    out.add({shown("Severity", severity_value(f->severity)),
             shown("Place", f->file + ":" + std::to_string(f->line) + ":" + std::to_string(f->column)), shown("Rule", f->rule),
             shown("Found", f->text), shown("Rewritten as", f->replacement), shown("Done by", to_string(f->done_by)),
             on_page(shown("Hours", f->hours)), shown("Note", f->advice)});
  }
  return out;
}

Json json_of(const SourceFinding& f) {
  return Json::object({{"file", f.file},
                       {"line", f.line},
                       {"column", f.column},
                       {"text", f.text},
                       {"rule", f.rule},
                       {"severity", to_string(f.severity)},
                       {"advice", f.advice},
                       {"mechanical", f.mechanical},
                       {"done_by", to_string(f.done_by)},
                       {"replacement", f.replacement},
                       {"hours", f.hours}});
}

}  // namespace

Report report_of(const SourceScan& scan) {
  auto done_by = Json::object();
  for (const auto& [who, places] : scan.done_by) done_by.set(to_string(who), places);
  Report out("Source scan for Ascend NPUs", Json::object({{"source", scan.source},
                                                          {"verdict", to_string(scan.verdict)},
                                                          {"summary", headline(scan)},
                                                          {"serves_npu", scan.serves_npu},
                                                          {"hours", scan.hours},
                                                          {"hours_mechanical", scan.hours_mechanical},
                                                          {"places", scan.places},
                                                          {"done_by", std::move(done_by)},
                                                          {"files", scan.files},
                                                          {"lines", scan.lines},
                                                          {"skipped", Json::object({{"other_files", scan.other_files},
                                                                                    {"binary_files", scan.binary_files},
                                                                                    {"folders", scan.folders_skipped},
                                                                                    {"links", scan.links}})}}));
  const auto tone = scan.verdict == Feasibility::Ready ? Tone::Good : scan.verdict == Feasibility::Blocked ? Tone::Bad : Tone::Warn;
  out.say(scan.source + ": " + headline(scan), tone, ReportIn::Text);
  out.say("The migration is " + headline(scan), tone, ReportIn::Page);
  out.facts({shown("Project", scan.source), shown("Source files", scan.files), shown("Lines", scan.lines), shown("Places", scan.places),
             shown("Hours", scan.hours), shown("By a rewrite", scan.hours_mechanical)},
            ReportIn::Page);
  if (const auto text = done_by_text(scan); !text.empty()) out.say(text);
  if (!scan.serves_npu.empty()) out.say(serves_npu_text(scan));
  out.table("libraries", libraries_table(scan));
  out.table("rules", rules_table(scan, /*libraries=*/true), ReportIn::Page);
  out.table("", rules_table(scan, /*libraries=*/false), ReportIn::Text);
  const auto left = scan.places - static_cast<int64_t>(scan.findings.size());
  out.late_table([&scan](size_t most) { return places_table(scan, most > 0 ? most : scan.findings.size()); }, ReportIn::Text);
  out.late_table([&scan](size_t /*most*/) { return places_table(scan, kMostPlaces); }, ReportIn::Page);
  auto findings = Json::array();
  for (const auto& f : scan.findings) findings.push_back(json_of(f));
  out.data({{"findings", std::move(findings)}, {"notes", detail::json_list(scan.notes)}});
  if (left > 0) out.say(counted(left, "further place") + " of the same rules are counted above");
  if (!scan.notes.empty() || scan.links > 0) out.heading("Not scanned", ReportIn::All);
  for (const auto& note : scan.notes) out.say(note);
  if (scan.links > 0) out.say(counted(scan.links, "link") + ", not followed");
  return out;
}

std::string to_csv(const SourceScan& scan) {
  auto out = csv_row({"file", "line", "column", "severity", "rule", "text", "replacement", "mechanical", "done_by", "hours", "advice"});
  std::map<std::string, const RuleUse*> rules;
  for (const auto& rule : scan.rules) rules[rule.id] = &rule;
  for (const auto& f : scan.findings)
    out += csv_row({f.file, std::to_string(f.line), std::to_string(f.column), to_string(f.severity), f.rule, f.text, f.replacement,
                    f.mechanical ? "true" : "false", to_string(f.done_by), shortest(f.hours),
                    f.advice.empty() ? rules[f.rule]->advice : f.advice});
  return out;
}

std::string unsupported_csv(const SourceScan& scan) {
  std::map<std::string, const RuleUse*> rules;
  for (const auto& rule : scan.rules) rules[rule.id] = &rule;
  auto out = csv_row({"operator", "support", "count", "where", "action", "done_by", "hours"});
  for (const auto& op : scan.unsupported) {
    auto where = join(op.first);
    const auto more = op.places - static_cast<int64_t>(op.first.size());
    if (more > 0) where += ", and " + std::to_string(more) + " more";
    out += csv_row({op.name, op.rule == "fallback-api" ? "cpu_fallback" : "unsupported", std::to_string(op.places), where,
                    op.advice.empty() ? rules[op.rule]->advice : op.advice, to_string(DoneBy::Hand), shortest(op.hours)});
  }
  return out;
}

}  // namespace npu_train
