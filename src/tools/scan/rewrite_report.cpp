#include "tools/scan/rewrite_report.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "npu_train/tools/scan/source_scan.hpp"
#include "tools/scan/counted.hpp"
#include "tools/scan/project.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr size_t kLine = 200;   // shown length of a line, in code points
constexpr size_t kContext = 3;  // lines around a change in a diff

std::vector<std::string_view> lines_with_ends(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin < text.size(); begin += out.back().size())
    out.push_back(text.substr(begin, std::min(text.find('\n', begin), text.size() - 1) + 1 - begin));
  return out;
}

void put_lines(char mark, std::string_view text, std::string& out) {
  for (const auto line : lines_with_ends(text)) {
    out += mark;
    out += line;
    if (!line.ends_with('\n')) out += "\n\\ No newline at end of file\n";
  }
}

// Writes a name like git: a name with blanks ends in a tab; one with quotes, controls or bytes beyond ASCII is a C string.
std::string shown_name(const std::string& side, const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
  if (plain) return side + path + (path.find(' ') == std::string::npos ? "" : "\t");
  std::string out = "\"" + side;
  for (const char c : path) {
    if (c == '"' || c == '\\') out += '\\';
    out += c >= 0x20 && c < 0x7F ? std::string(1, c) : printed("\\%03o", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out + "\"";
}

std::string range(size_t first, size_t count) {
  // An empty range is numbered by the line before it.
  return std::to_string(count == 0 ? first : first + 1) + (count == 1 ? "" : "," + std::to_string(count));
}

// A line of the old text, and the text that replaces it. Both include their line ends, if any.
struct ChangedLine {
  size_t line = 0;  // counted from 0
  std::string_view before;
  std::string after;
};

// Returns the lines that the edits of `hits` change. `hits` must be sorted, each inside one line.
std::vector<ChangedLine> changed_lines(std::string_view text, const std::vector<Hit>& hits) {
  std::vector<ChangedLine> out;
  size_t line = 0, begin = 0, end = 0;  // the line that is being changed
  size_t done = 0;                      // end of the text that was already copied
  const auto close = [&] {
    if (!out.empty()) out.back().after += text.substr(done, end - done);
  };
  for (const auto& hit : hits)
    for (const auto& edit : hit.edits) {
      if (out.empty() || (edit.begin >= end && end < text.size())) {
        close();
        const size_t start = text.substr(0, edit.begin).rfind('\n') + 1;  // 0 if rfind returns npos
        line += static_cast<size_t>(std::count(text.begin() + begin, text.begin() + start, '\n'));
        begin = done = start;
        end = std::min(text.size(), text.find('\n', begin));
        if (end < text.size()) ++end;
        out.push_back({line, text.substr(begin, end - begin), ""});
      }
      out.back().after += text.substr(done, edit.begin - done);
      out.back().after += edit.text;
      done = edit.begin + edit.length;
    }
  close();
  return out;
}

// Returns a diff with three lines of context; names with special bytes are quoted as in git. Empty if there are no changes.
std::string unified_diff(const std::string& path, std::string_view text, const std::vector<ChangedLine>& changes) {
  if (changes.empty()) return "";
  const auto lines = lines_with_ends(text);
  std::string out = "--- " + shown_name("a/", path) + "\n+++ " + shown_name("b/", path) + "\n";
  size_t added = 0;  // lines that the previous hunks have added
  for (size_t i = 0; i < changes.size();) {
    const size_t first = changes[i].line - std::min(changes[i].line, kContext);
    size_t stop = i, last = first;
    for (; stop < changes.size() && (stop == i || changes[stop].line <= last + kContext); ++stop)
      last = std::min(lines.size(), changes[stop].line + 1 + kContext);
    std::string body;
    size_t at = first, new_count = 0;
    for (size_t k = i; k < stop; ++k) {
      for (; at < changes[k].line; ++at, ++new_count) put_lines(' ', lines[at], body);
      put_lines('-', changes[k].before, body);
      put_lines('+', changes[k].after, body);
      new_count += lines_with_ends(changes[k].after).size();
      ++at;
    }
    for (; at < last; ++at, ++new_count) put_lines(' ', lines[at], body);
    out += "@@ -" + range(first, last - first) + " +" + range(first + added, new_count) + " @@\n" + body;
    added += new_count - (last - first);
    i = stop;
  }
  return out;
}

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

void RewriteLog::add_file(const std::string& path, std::string_view text) {
  std::string lines;
  put_lines('+', text, lines);
  diff_.write("--- /dev/null\n+++ " + shown_name("b/", path) + "\n@@ -0,0 +" + range(0, lines_with_ends(text).size()) + " @@\n" + lines);
}

void RewriteLog::finish(const Rewrite& totals) {
  log_.write("\n],\"files\":" + std::to_string(totals.files) + ",\"files_changed\":" + std::to_string(totals.files_changed) +
             ",\"changed\":" + std::to_string(totals.changes) + ",\"left_out\":" + detail::json_list(totals.left_out).dump(0) + "}\n");
  log_.commit();
  diff_.commit();
}

std::string todo_text(const Rewrite& rewrite) {
  const auto& scan = rewrite.remaining;
  std::string out = "# Manual changes\n\nVerdict: " + headline(scan) + ".\n";
  for (const auto& text : rewrite.left_out) out += "\n- [ ] not copied: " + code(text);
  if (!rewrite.left_out.empty()) out += "\n";
  if (!rewrite.by_hand.empty()) out += "\n## Several processes\n\nPlaces that one process for each NPU needs, by line of the copy.\n\n";
  for (const auto& place : rewrite.by_hand) out += "- [ ] " + place + "\n";
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
  if (scan.verdict == Feasibility::Ready && rewrite.by_hand.empty()) out += "\nNone. Next, compare a run on the NPU with the original.\n";
  return out;
}

}  // namespace npu_train::detail::scan
