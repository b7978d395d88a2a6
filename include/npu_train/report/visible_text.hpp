/// Text that may come from a file of anybody, made fit to be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// UTF-8 without what acts on a terminal or on the order of letters: control characters, text direction marks, invisible letters and bytes
/// that are not UTF-8 are escaped ("\n", "\x1b", "\u202e").
std::string visible_text(std::string_view text);

/// visible_text() of at most `longest` code points, bytes that are not UTF-8 counted as one each; "..." tells that there was more.
std::string visible_start(std::string_view text, size_t longest);

/// Number of code points of any text, bytes that are not UTF-8 counted as one each.
size_t columns_of(std::string_view text);

/// visible_text() with the markup of HTML escaped, for text and for attributes in double quotes.
std::string escape_html(std::string_view text);

/// Number of code points of valid UTF-8.
size_t code_points(std::string_view text);

/// The byte behind the first `points` code points of valid UTF-8, or its size.
size_t byte_of_point(std::string_view text, size_t points);

/// Valid UTF-8 of at most `longest` (at least 4) code points, the middle replaced by "...".
std::string shorten_middle(const std::string& text, size_t longest);

}  // namespace npu_train::detail
