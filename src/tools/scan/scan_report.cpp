#include "npu_train/tools/scan/scan_report.hpp"

#include <algorithm>
#include <map>

#include "npu_train/core/first_few.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/csv.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"
#include "tools/scan/counted.hpp"

namespace npu_train {

using namespace detail::scan;

namespace {

// Names the first few blocking rules, those with the most hours.
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

// Explains the consequence if the project already supports NPUs.
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

std::string libraries_text(const SourceScan& scan, size_t width) {
  if (scan.libraries.empty()) return "";
  TextTable table({"Library", "On NPUs", "Hours", "First place", "Action"});
  for (const auto& library : scan.libraries)
    table.add_row({library.name, to_string(library.state), short_number(library.hours), library.first_place,
                   (library.replacement.empty() ? "" : "Use " + library.replacement + ". ") + library.advice});
  return "\nLibraries\n" + table.str(width);
}

std::string rules_text(const SourceScan& scan) {
  std::string out;
  for (const auto& rule : scan.rules) {
    if (rule.id.starts_with("library:")) continue;
    out += "\n" + std::string(to_string(rule.severity)) + "  " + rule.id + ": " + rule.title + ", " + counted(rule.places, "place") +
           " in " + counted(rule.files, "file") + ", " + short_number(rule.hours) + " h";
    if (rule.mechanical > 0)
      out += rule.mechanical == rule.places ? " (a rewrite does it)" : " (a rewrite does " + with_commas(rule.mechanical) + ")";
    out += "\n    " + rule.why + " " + rule.advice + "\n";
  }
  return out.empty() ? "" : "\nActions\n" + out;
}

std::string places_text(const SourceScan& scan, size_t rows, size_t width) {
  if (scan.findings.empty()) return "";
  TextTable table({"Severity", "Place", "Rule", "Found", "Rewritten as", "Note"});
  const auto sorted = worst_first(scan);
  const size_t shown = rows == 0 ? sorted.size() : std::min(rows, sorted.size());
  for (size_t i = 0; i < shown; ++i) {
    const auto& f = *sorted[i];
    table.add_row({to_string(f.severity), f.file + ":" + std::to_string(f.line) + ":" + std::to_string(f.column), f.rule, f.text,
                   f.replacement, f.advice});
  }
  auto out = "\nPlaces\n" + table.str(width);
  if (const auto left = scan.places - static_cast<int64_t>(shown); left > 0) out += "and " + counted(left, "further place") + "\n";
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
                       {"replacement", f.replacement},
                       {"hours", f.hours}});
}

Json json_of(const RuleUse& r) {
  return Json::object({{"id", r.id},
                       {"title", r.title},
                       {"severity", to_string(r.severity)},
                       {"why", r.why},
                       {"advice", r.advice},
                       {"places", r.places},
                       {"files", r.files},
                       {"mechanical", r.mechanical},
                       {"hours", r.hours},
                       {"hours_mechanical", r.hours_mechanical}});
}

Json json_of(const LibraryUse& l) {
  return Json::object({{"name", l.name},
                       {"state", to_string(l.state)},
                       {"replacement", l.replacement},
                       {"advice", l.advice},
                       {"hours", l.hours},
                       {"places", l.places},
                       {"first_place", l.first_place}});
}

template <class Item>
Json array_of(const std::vector<Item>& items) {
  auto out = Json::array();
  for (const auto& item : items) out.push_back(json_of(item));
  return out;
}

}  // namespace

std::string to_text(const SourceScan& scan, size_t rows, size_t width) {
  auto out = scan.source + ": " + headline(scan) + "\n";
  if (!scan.serves_npu.empty()) out += serves_npu_text(scan) + "\n";
  out += libraries_text(scan, width) + rules_text(scan) + places_text(scan, rows, width);
  if (!scan.notes.empty() || scan.links > 0) out += "\nNot scanned\n";
  for (const auto& note : scan.notes) out += "    " + note + "\n";
  if (scan.links > 0) out += "    " + counted(scan.links, "link") + ", not followed\n";
  return out;
}

Json to_json(const SourceScan& scan) {
  auto notes = Json::array();
  for (const auto& note : scan.notes) notes.push_back(note);
  return Json::object({{"source", scan.source},
                       {"verdict", to_string(scan.verdict)},
                       {"summary", headline(scan)},
                       {"serves_npu", scan.serves_npu},
                       {"hours", scan.hours},
                       {"hours_mechanical", scan.hours_mechanical},
                       {"places", scan.places},
                       {"files", scan.files},
                       {"lines", scan.lines},
                       {"skipped", Json::object({{"other_files", scan.other_files},
                                                 {"binary_files", scan.binary_files},
                                                 {"folders", scan.folders_skipped},
                                                 {"links", scan.links}})},
                       {"libraries", array_of(scan.libraries)},
                       {"rules", array_of(scan.rules)},
                       {"findings", array_of(scan.findings)},
                       {"notes", notes}});
}

std::string to_csv(const SourceScan& scan) {
  auto out = csv_row({"file", "line", "column", "severity", "rule", "text", "replacement", "mechanical", "hours", "advice"});
  std::map<std::string, const RuleUse*> rules;
  for (const auto& rule : scan.rules) rules[rule.id] = &rule;
  for (const auto& f : scan.findings)
    out += csv_row({f.file, std::to_string(f.line), std::to_string(f.column), to_string(f.severity), f.rule, f.text, f.replacement,
                    f.mechanical ? "true" : "false", shortest(f.hours), f.advice.empty() ? rules[f.rule]->advice : f.advice});
  return out;
}

namespace {

using Cell = HtmlTable::Cell;

Tone tone_of(Severity severity) { return severity == Severity::Blocks ? Tone::Bad : severity == Severity::Note ? Tone::Plain : Tone::Warn; }

Tone tone_of(LibraryState state) {
  return state == LibraryState::Works ? Tone::Good : state == LibraryState::None ? Tone::Bad : Tone::Warn;
}

// Sorts by severity instead of alphabetically.
Cell severity_cell(Severity severity) { return {to_string(severity), static_cast<double>(severity), tone_of(severity)}; }

HtmlTable rules_table(const SourceScan& scan) {
  HtmlTable table{
      .title = "Actions",
      .columns = {
          {"Severity"}, {"Rule"}, {"Places", true}, {"Files", true}, {"By a rewrite", true}, {"Hours", true}, {"Reason"}, {"Action"}}};
  for (const auto& rule : scan.rules)
    table.rows.push_back({severity_cell(rule.severity),
                          {rule.title},
                          Cell::number(static_cast<double>(rule.places)),
                          Cell::number(static_cast<double>(rule.files)),
                          Cell::number(static_cast<double>(rule.mechanical)),
                          Cell::number(rule.hours),
                          {rule.why},
                          {rule.advice}});
  return table;
}

HtmlTable libraries_table(const SourceScan& scan) {
  HtmlTable table{.title = "Third-party libraries",
                  .columns = {{"Library"}, {"On NPUs"}, {"Places", true}, {"Hours", true}, {"First place"}, {"Replacement"}, {"Advice"}}};
  for (const auto& library : scan.libraries)
    table.rows.push_back({{library.name},
                          {to_string(library.state), static_cast<double>(library.state), tone_of(library.state)},
                          Cell::number(static_cast<double>(library.places)),
                          Cell::number(library.hours),
                          {library.first_place},
                          {library.replacement},
                          {library.advice}});
  return table;
}

HtmlTable places_table(const SourceScan& scan) {
  constexpr size_t kRows = 20'000;
  HtmlTable table{
      .title = "Places",
      .columns = {
          {"Severity"}, {"File"}, {"Line", true}, {"Column", true}, {"Rule"}, {"Found"}, {"Rewritten as"}, {"Hours", true}, {"Note"}}};
  for (const auto* f : worst_first(scan)) {
    if (table.rows.size() == kRows) break;
    table.rows.push_back({severity_cell(f->severity),
                          {f->file},
                          Cell::number(static_cast<double>(f->line)),
                          Cell::number(static_cast<double>(f->column)),
                          {f->rule},
                          {f->text},
                          {f->replacement},
                          Cell::number(f->hours),
                          {f->advice}});
  }
  return table;
}

}  // namespace

std::string to_html(const SourceScan& scan) {
  HtmlPage page("Source scan for Ascend NPUs");
  const auto tone = scan.verdict == Feasibility::Ready ? Tone::Good : scan.verdict == Feasibility::Blocked ? Tone::Bad : Tone::Warn;
  page.paragraph("The migration is " + headline(scan) + ".", tone);
  page.facts({{"Project", scan.source},
              {"Source files", with_commas(scan.files)},
              {"Lines", with_commas(scan.lines)},
              {"Places", with_commas(scan.places)},
              {"Hours", short_number(scan.hours)},
              {"By a rewrite", short_number(scan.hours_mechanical)}});
  if (!scan.serves_npu.empty()) page.paragraph(serves_npu_text(scan));
  if (!scan.libraries.empty()) page.table(libraries_table(scan));
  if (!scan.rules.empty()) page.table(rules_table(scan));
  if (!scan.findings.empty()) {
    auto places = places_table(scan);
    const auto left = scan.places - static_cast<int64_t>(places.rows.size());
    page.table(places);
    if (left > 0) page.paragraph(counted(left, "further place") + " of the same rules are counted above.");
  }
  if (!scan.notes.empty()) page.heading("Not scanned");
  for (const auto& note : scan.notes) page.paragraph(note);
  return page.str();
}

}  // namespace npu_train
