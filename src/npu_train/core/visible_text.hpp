/// Escapes text from untrusted files for display.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// Returns UTF-8 in which characters that affect a terminal or the order of letters are escaped ("\x1b", "\u202e"): control characters
/// including line ends, text direction marks, invisible letters and bytes that are not UTF-8.
std::string visible_text(std::string_view text);

/// Applies visible_text(), but keeps line ends and tabs. For complete messages and reports on a terminal.
std::string visible_lines(std::string_view text);

/// Applies visible_text() to at most `longest` code points (each byte that is not UTF-8 counts as one); "..." marks omitted text.
std::string visible_start(std::string_view text, size_t longest);

/// Returns valid UTF-8 of at most `longest` (at least 4) code points, with the middle replaced by "...".
std::string shorten_middle(const std::string& text, size_t longest);

/// Number of code points; each byte that is not UTF-8 counts as one.
size_t code_points(std::string_view text);

/// Returns the byte offset after the first `points` code points, counted as by code_points(); at most the size of the text.
size_t byte_of_point(std::string_view text, size_t points);

}  // namespace npu_train::detail
