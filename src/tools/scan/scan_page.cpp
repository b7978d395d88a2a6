// The page of a source scan.
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/scan/scan_report.hpp"
#include "tools/scan/report_rows.hpp"

namespace npu_train {

using namespace detail::scan;

namespace {

using Cell = HtmlTable::Cell;

Tone tone_of(Severity severity) {
  switch (severity) {
    case Severity::Blocks:
      return Tone::Bad;
    case Severity::Note:
      return Tone::Plain;
    default:
      return Tone::Warn;
  }
}

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
