/// Wraps text for a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace npu_train {

/// Breaks `text` at blanks into lines of at most `width` columns (0: one line), each with a line end. `first` precedes the first line and
/// `rest` the others. Longer words are not broken, so that paths can be copied. Control characters of `text` are escaped.
std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, size_t width);

/// Wraps a line that has a layout of its own: keeps inner blanks, and indents continuation lines to the text after the line's first gap of
/// two or more blanks.
std::string wrapped_line(const std::string& line, size_t width);

/// Applies wrapped_line() to each line of `text`.
std::string wrapped_lines(const std::string& text, size_t width);

}  // namespace npu_train
