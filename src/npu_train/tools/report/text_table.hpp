/// Tables for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace npu_train {

/// Rows of text under a header, in columns of constant width that are separated by two spaces:
///
///     layer  max error  verdict
///
/// A column whose cells are all numbers ("-1.5e-3", "1,234", "98.2 %", "3.1 GiB") is aligned to the right; cells that are "" or "-" are
/// ignored in this. A column whose cells are all empty or "-" is omitted. Width is counted in code points. Names from files cannot control
/// the terminal: control characters, text direction marks and bytes that are not UTF-8 are shown escaped ("\n", "\x1b", "\u202e").
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> columns);

  /// Error(Usage) unless there is one cell for each column.
  void add_row(std::vector<std::string> cells);

  /// Returns all lines, each with its line end. `width` is the maximum length of a line; 0: any. A text that is too wide for its column
  /// continues in further lines, broken at blanks, then after path separators, then anywhere; no text is omitted. If the columns do not fit
  /// side by side, each row becomes a block with one line per cell, as "name cell".
  std::string str(size_t width = 0) const;

 private:
  struct Layout {
    std::vector<size_t> columns;  // columns that are not empty
    std::vector<size_t> widths;
    std::vector<bool> numeric;
    bool fits = true;
  };
  Layout layout(size_t width) const;
  std::string lines(const Layout& layout, const std::vector<std::string>& cells) const;
  std::string blocks(const Layout& layout, size_t width) const;

  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace npu_train
