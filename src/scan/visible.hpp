// Names and texts of a project that anybody may have written, made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace npu_train::detail::scan {

/// UTF-8 without what acts on a terminal or on the order of letters: control characters, direction marks and bytes that are not UTF-8
/// become "\n", "\x1b", "\u202e".
std::string visible(std::string_view text);

/// visible() of at most `longest` code points; "..." tells that there was more.
std::string visible_start(std::string_view text, size_t longest);

/// Number of code points, a byte that is not UTF-8 counted as one.
size_t columns_of(std::string_view text);

}  // namespace npu_train::detail::scan
