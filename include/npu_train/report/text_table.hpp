/// Tables for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace npu_train {

/// Rows of text under a header, in columns of even width:
///
///     layer   | max error | verdict        (without the bars: two spaces stand between columns)
///
/// A column whose cells are all numbers ("-1.5e-3", "1,234", "98.2 %", "3.1 GiB"; "" and "-" count as none) is aligned to the right. Width
/// is counted in code points. Names from files cannot reach the terminal's controls: control characters, text direction marks and bytes
/// that are not UTF-8 are shown escaped ("\n", "\x1b", "\u202e").
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> columns);

  /// Error(Usage) unless there is one cell for each column.
  void add_row(std::vector<std::string> cells);

  /// All lines, each with its line end. `width` > 0 is the room of a line: the widest columns of text are shortened in the middle
  /// ("encoder...weight"), never below 8 and never a column of numbers, so that a very narrow `width` may still be exceeded.
  std::string str(size_t width = 0) const;
  /// The same, but nothing is left out: text that is shortened there goes on in further lines, broken between words. Only a word that is
  /// longer than its column is shortened.
  std::string wrapped(size_t width) const;

 private:
  struct Layout {
    std::vector<size_t> widths;
    std::vector<bool> numeric;
  };
  Layout layout(size_t width) const;
  std::string line(const Layout& layout, const std::vector<std::string>& cells) const;
  std::string head(const Layout& layout) const;

  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace npu_train
