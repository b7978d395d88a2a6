/// Text that may come from a file of anybody, made fit to be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// UTF-8 without what acts on a terminal or on the order of letters: control characters, text direction marks, invisible letters and bytes
/// that are not UTF-8 are escaped ("\n", "\x1b", "\u202e").
std::string visible_text(std::string_view text);

/// visible_text() of each line: line ends and tabs stay. For whole messages and reports, on their way to a terminal.
std::string visible_lines(std::string_view text);

/// visible_text() of at most `longest` code points, bytes that are not UTF-8 counted as one each; "..." tells that there was more.
std::string visible_start(std::string_view text, size_t longest);

/// Number of code points of any text, bytes that are not UTF-8 counted as one each.
size_t code_points(std::string_view text);

/// The byte behind the first `points` code points, counted in the same way, or the size of the text.
size_t byte_of_point(std::string_view text, size_t points);

}  // namespace npu_train::detail
