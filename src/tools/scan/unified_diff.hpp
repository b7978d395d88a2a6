// Formats changes of a file as a unified diff, which `patch -p1` applies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {

/// A line of the old text, and the line or lines that replace it. Both include their line ends, if any.
struct ChangedLine {
  size_t line = 0;  // from 0
  std::string_view before;
  std::string after;
};

/// Returns the lines that the edits of `hits` change. `hits` must be sorted, each inside one line.
std::vector<ChangedLine> changed_lines(std::string_view text, const std::vector<Hit>& hits);

/// Returns a diff with three lines of context; names with special bytes are quoted as in git. Empty if there are no changes.
std::string unified_diff(const std::string& path, std::string_view text, const std::vector<ChangedLine>& changes);

}  // namespace npu_train::detail::scan
