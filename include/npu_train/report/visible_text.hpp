/// Text that may come from a file of anybody, made fit for pages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "npu_train/core/visible_text.hpp"

namespace npu_train::detail {

/// visible_text() with the markup of HTML escaped, for text and for attributes in double quotes.
std::string escape_html(std::string_view text);

/// Number of code points of valid UTF-8.
size_t code_points(std::string_view text);

/// The byte behind the first `points` code points of valid UTF-8, or its size.
size_t byte_of_point(std::string_view text, size_t points);

/// Valid UTF-8 of at most `longest` (at least 4) code points, the middle replaced by "...".
std::string shorten_middle(const std::string& text, size_t longest);

}  // namespace npu_train::detail
