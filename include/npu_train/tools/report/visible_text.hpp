/// Text from untrusted files, made safe for pages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "npu_train/core/visible_text.hpp"

namespace npu_train::detail {

/// visible_text() with the markup of HTML escaped, for text and for attributes in double quotes.
std::string escape_html(std::string_view text);

/// Valid UTF-8 of at most `longest` (at least 4) code points, the middle replaced by "...".
std::string shorten_middle(const std::string& text, size_t longest);

}  // namespace npu_train::detail
