// Changes of a file as a unified diff, which `patch -p1` applies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {

/// A line of the old text that becomes another text, or several lines. Both with their line ends, if they have one.
struct ChangedLine {
  size_t line = 0;  // from 0
  std::string_view before;
  std::string after;
};

/// The lines that the edits of `hits` (sorted, each inside of one line) change.
std::vector<ChangedLine> changed_lines(std::string_view text, const std::vector<Hit>& hits);

/// With three lines of context; names with odd bytes are quoted as git does. Empty when nothing changes.
std::string unified_diff(const std::string& path, std::string_view text, const std::vector<ChangedLine>& changes);

}  // namespace npu_train::detail::scan
