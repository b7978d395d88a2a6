/// Tables of facts: src/ROOM/facts/NAME.tsv, which the build embeds in the program (cmake/facts.hpp.in).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

/// Returns the rows after the first one, which names the columns. Lines that begin with '#' are comments. Cells are separated by tabs and
/// point into `table`. Error(Internal) if a row does not have `columns` cells, or if the first row is missing.
std::vector<std::vector<std::string_view>> facts_rows(std::string_view table, const char* name, size_t columns);

/// Returns the rows as strings; the cell "-" becomes "".
std::vector<std::vector<std::string>> facts_texts(std::string_view table, const char* name, size_t columns);

/// Returns the text of the comment line "# KEY: ..."; "" if it does not exist.
std::string facts_note(std::string_view table, std::string_view key);

/// Splits at each separator; an empty text gives one empty piece. Inline for the simulated NPU, which links none of our libraries.
inline std::vector<std::string_view> split_view(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (size_t begin = 0;;) {
    const auto end = text.find(separator, begin);
    out.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + 1;
  }
}

}  // namespace npu_train::detail
