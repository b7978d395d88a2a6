/// Text from untrusted files, made safe to show.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// UTF-8 without characters that affect a terminal or the order of letters: control characters, text direction marks, invisible letters and
/// bytes that are not UTF-8 are escaped ("\n", "\x1b", "\u202e").
std::string visible_text(std::string_view text);

/// visible_text() of each line: line ends and tabs are kept. For complete messages and reports that go to a terminal.
std::string visible_lines(std::string_view text);

/// visible_text() of at most `longest` code points, where each byte that is not UTF-8 counts as one; "..." marks omitted text.
std::string visible_start(std::string_view text, size_t longest);

/// Number of code points of any text; each byte that is not UTF-8 counts as one.
size_t code_points(std::string_view text);

/// The byte after the first `points` code points, counted in the same way, or the size of the text.
size_t byte_of_point(std::string_view text, size_t points);

}  // namespace npu_train::detail
