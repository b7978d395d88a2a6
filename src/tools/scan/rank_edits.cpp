// Adds statements that a program needs only if it runs as several ranks.
#include <string>

#include "npu_train/core/text.hpp"
#include "tools/scan/python_file.hpp"

namespace npu_train::detail::scan {
namespace {

// Returns the variable of `for epoch in range(...)`, `for epoch in tqdm(range(...))` or `trange(...)`; 0 for other lines. The first token
// of a line is never the variable.
size_t epoch_of(const PythonFile& file, const PythonLine& line) {
  const size_t variable = line.first + 1;
  if (!file.begins(line, "for") || !file.is_name(variable) || !file.is(variable + 1, "in")) return 0;
  if (to_lower(file.word(variable)).find("epoch") == std::string::npos) return 0;
  for (size_t i = variable + 2; i < line.end; ++i)
    if (file.is(i, "range") || file.is(i, "trange")) return variable;
  return 0;
}

// Returns the token after the colon that ends the head of a compound statement; line.end if the line has only the head.
size_t after_head(const PythonFile& file, const PythonLine& line) {
  int depth = 0;
  for (size_t i = line.first; i < line.end; ++i) {
    if (file.is(i, "(") || file.is(i, "[") || file.is(i, "{")) ++depth;
    if (file.is(i, ")") || file.is(i, "]") || file.is(i, "}")) --depth;
    if (depth == 0 && file.is(i, ":")) return i + 1;
  }
  return line.end;
}

}  // namespace

void add_epoch_edits(FileScan& scan, const PythonFile& file) {
  if (!file.imports_module("torch")) return;
  const auto& lines = file.lines();
  for (size_t k = 0; k < lines.size(); ++k) {
    const auto variable = epoch_of(file, lines[k]);
    if (variable == 0) continue;
    const size_t body = after_head(file, lines[k]);
    const bool same_line = body < lines[k].end;
    if (!same_line && (k + 1 == lines.size() || lines[k + 1].indent <= lines[k].indent)) continue;
    const size_t at = file.begin(same_line ? body : lines[k + 1].first);
    auto call = std::string(kRankModule) + ".set_epoch(" + std::string(file.word(variable)) + ")";
    if (same_line) {
      call += "; ";
    } else {
      const auto line_start = file.text().rfind('\n', at) + 1;  // the body begins on a later line
      const bool crlf = line_start >= 2 && file.text()[line_start - 2] == '\r';
      call += (crlf ? "\r\n" : "\n") + std::string(file.text().substr(line_start, at - line_start));
    }
    scan.add("ranks", file.begin(lines[k].first), file.span(lines[k].first, variable), {{static_cast<uint32_t>(at), 0, std::move(call)}});
  }
}

}  // namespace npu_train::detail::scan
