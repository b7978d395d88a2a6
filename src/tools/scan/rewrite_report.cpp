#include "tools/scan/rewrite_report.hpp"
#include "npu_train/tools/report/visible_text.hpp"

#include <algorithm>

#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/scan/scan_report.hpp"
#include "tools/scan/report_rows.hpp"
#include "tools/scan/walk.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr size_t kLine = 200;

std::string without_end(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  return visible_start(line, kLine);
}

// Formats any text as code in a table or list of Markdown.
std::string code(const std::string& text) {
  if (text.find('`') == std::string::npos) return "`" + text + "`";
  return "``` " + text + " ```";
}

}  // namespace

RewriteLog::RewriteLog(const std::filesystem::path& folder, const std::string& source)
    : log_(folder / kReportLog, Durability::Renamed), diff_(folder / "changes.diff", Durability::Renamed) {
  log_.write("{\"format\":\"npu_train rewrite\",\"version\":1,\"source\":" + Json(source).dump(0) + ",\"changes\":[");
}

void RewriteLog::add(const SourceFile& file, const std::vector<Hit>& hits) {
  const auto lines = changed_lines(file.text, hits);
  diff_.write(unified_diff(file.path, file.text, lines));
  size_t at = 0;
  for (const auto& hit : hits) {
    if (hit.edits.empty()) continue;
    const auto begin = hit.edits.front().begin;
    // Lines and hits are both sorted by place.
    while (at + 1 < lines.size() && lines[at + 1].before.data() <= file.text.data() + begin) ++at;
    const auto entry = Json::object({{"file", visible_text(file.path)},
                                     {"line", static_cast<int64_t>(lines[at].line + 1)},
                                     {"rule", hit.rule->id},
                                     {"found", visible_start(std::string_view(file.text).substr(hit.begin, hit.length), kLine)},
                                     {"put", visible_start(replacement_of(file.text, hit), kLine)},
                                     {"before", without_end(lines[at].before)},
                                     {"after", without_end(lines[at].after)}});
    log_.write((first_ ? "\n" : ",\n") + entry.dump(0));
    first_ = false;
  }
}

void RewriteLog::finish(const Rewrite& totals) {
  auto left_out = Json::array();
  for (const auto& text : totals.left_out) left_out.push_back(text);
  log_.write("\n],\"files\":" + std::to_string(totals.files) + ",\"files_changed\":" + std::to_string(totals.files_changed) +
             ",\"changed\":" + std::to_string(totals.changes) + ",\"left_out\":" + left_out.dump(0) + "}\n");
  log_.commit();
  diff_.commit();
}

std::string todo_text(const Rewrite& rewrite) {
  const auto& scan = rewrite.remaining;
  std::string out = "# Manual changes\n\nVerdict: " + headline(scan) + ".\n";
  for (const auto& text : rewrite.left_out) out += "\n- [ ] not copied: " + code(text);
  if (!rewrite.left_out.empty()) out += "\n";
  for (const auto& rule : scan.rules) {
    if (rule.severity == Severity::Note) continue;
    out += "\n## " + std::string(to_string(rule.severity)) + ": " + rule.title + "\n\n" + counted(rule.places, "place") + ", " +
           short_number(rule.hours) + " h. " + rule.why + " " + rule.advice + "\n\n";
    int64_t shown = 0;
    for (const auto& f : scan.findings) {
      if (f.rule != rule.id) continue;
      out += "- [ ] " + code(f.file + ":" + std::to_string(f.line)) + " " + code(f.text) + (f.advice.empty() ? "" : " " + f.advice) + "\n";
      ++shown;
    }
    if (shown < rule.places) out += "- [ ] " + counted(rule.places - shown, "further place") + "\n";
  }
  if (scan.verdict == Feasibility::Ready) out += "\nNone. Next, compare a run on the NPU with the original.\n";
  return out;
}

}  // namespace npu_train::detail::scan
