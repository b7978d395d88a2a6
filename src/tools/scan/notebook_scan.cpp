// Scans a Jupyter notebook: the code of all cells, as one program.
#include <algorithm>

#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr int kDeepestValue = 64;

// Encodes text as the content of a JSON string.
std::string in_json(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

// Reads the file in one pass. It follows only the nesting, and stops at malformed input.
class NotebookReader {
 public:
  explicit NotebookReader(std::string_view text) : text_(text) {}

  // Returns false if the file is not a notebook.
  bool run() {
    size_t i = 0;
    return value(i, 0, Role::Document) && found_cells_;
  }
  const EmbeddedCode& code() const { return code_; }

 private:
  enum class Role { Document, Cells, Cell, Source, Kind, Other };
  struct Cell {
    bool is_code = false;
    std::vector<std::pair<size_t, size_t>> texts;  // bodies of the strings of its source
  };

  void blanks(size_t& i) const { i = std::min(text_.size(), text_.find_first_not_of(" \t\r\n", i)); }
  bool take(size_t& i, char c) const {
    blanks(i);
    if (i >= text_.size() || text_[i] != c) return false;
    ++i;
    return true;
  }

  bool text(size_t& i, size_t& begin, size_t& end) const {
    if (!take(i, '"')) return false;
    begin = i;
    end = closing_mark(text_, i, '"');
    i = end + 1;
    return end < text_.size();
  }

  bool value(size_t& i, int depth, Role role) {
    blanks(i);
    if (i >= text_.size() || depth > kDeepestValue) return false;
    if (text_[i] == '{') return object(i, depth, role);
    if (text_[i] == '[') return list(i, depth, role);
    if (text_[i] == '"') {
      size_t begin = 0, end = 0;
      if (!text(i, begin, end)) return false;
      if (role == Role::Source) cell_.texts.emplace_back(begin, end);
      if (role == Role::Kind) cell_.is_code = text_.substr(begin, end - begin) == "code";
      return true;
    }
    const auto stop = std::min(text_.size(), text_.find_first_of(",]} \t\r\n", i));
    const bool some = stop > i;
    i = stop;
    return some;
  }

  static Role role_of(Role object, std::string_view key) {
    if (object == Role::Document && key == "cells") return Role::Cells;
    if (object == Role::Cell && key == "source") return Role::Source;
    if (object == Role::Cell && key == "cell_type") return Role::Kind;
    return Role::Other;
  }

  bool object(size_t& i, int depth, Role role) {
    const bool cell = role == Role::Cell;
    if (cell) cell_ = {};
    ++i;
    blanks(i);
    if (i < text_.size() && text_[i] == '}') return ++i, true;
    do {
      size_t begin = 0, end = 0;
      if (!text(i, begin, end) || !take(i, ':')) return false;
      if (!value(i, depth + 1, role_of(role, text_.substr(begin, end - begin)))) return false;
    } while (take(i, ','));
    if (!take(i, '}')) return false;
    if (cell && cell_.is_code) add_cell();
    return true;
  }

  bool list(size_t& i, int depth, Role role) {
    const auto item = role == Role::Cells ? Role::Cell : role == Role::Source ? Role::Source : Role::Other;
    found_cells_ |= role == Role::Cells;
    ++i;
    blanks(i);
    if (i < text_.size() && text_[i] == ']') return ++i, true;
    do
      if (!value(i, depth + 1, item)) return false;
    while (take(i, ','));
    return take(i, ']');
  }

  void add_cell() {
    EmbeddedCode cell;
    for (const auto& [begin, end] : cell_.texts) decode(begin, end, cell);
    const std::string_view code = cell.code();
    const auto is_magic = [&](std::string_view name) { return code.starts_with(name); };
    if (is_magic("%%") && !is_magic("%%time") && !is_magic("%%capture") && !is_magic("%%prun")) return;  // %%bash, %%writefile ...
    bool starts = true, foreign = false;
    for (size_t k = 0; k < code.size(); ++k) {
      const char c = code[k];
      if (starts) foreign = c == '%' || c == '!';  // the line is for the notebook or the shell
      starts = c == '\n';
      const auto [begin, end] = cell.place(k);
      code_.add(foreign && c != '\n' ? ' ' : c, begin, end);
    }
    if (!code.empty()) code_.add('\n', cell.place(code.size() - 1).second, cell.place(code.size() - 1).second);
  }

  // Decodes a JSON string: UTF-8 or escapes. For \uXXXX, any byte that is not ASCII suffices.
  void decode(size_t begin, size_t end, EmbeddedCode& out) const {
    constexpr std::string_view kLetters = "nrtbf", kMeant = "\n\r\t\b\f";
    for (size_t i = begin; i < end;) {
      if (text_[i] != '\\') {
        out.add(text_[i], i, i + 1);
        ++i;
        continue;
      }
      const char c = i + 1 < end ? text_[i + 1] : '\\';
      const size_t stop = std::min(end, i + (c == 'u' ? 6 : 2));
      const auto at = kLetters.find(c);
      out.add(c == 'u' ? '\x80' : at == std::string_view::npos ? c : kMeant[at], i, stop);
      i = stop;
    }
  }

  std::string_view text_;
  EmbeddedCode code_;
  Cell cell_;
  bool found_cells_ = false;
};

}  // namespace

void scan_notebook(FileScan& scan) {
  NotebookReader reader(scan.text());
  if (!reader.run()) return scan.add("notebook", 0, 0);
  reader.code().scan_as_python(scan, &in_json);
}

}  // namespace npu_train::detail::scan
