/// Sentences for a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace npu_train {

/// `text` as lines of at most `width` columns (0: one line), broken at blanks, the first line after `first` and the others after `rest`,
/// with line ends. Longer words stay complete, so that paths can be copied. Control characters of `text` are escaped.
std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, size_t width);

/// A line that has its own layout, wrapped in the same way: blanks inside the line are kept, and further lines are indented to the text of
/// the line, which follows its first gap of two blanks or more.
std::string wrapped_line(const std::string& line, size_t width);

/// wrapped_line() of each line of `text`.
std::string wrapped_lines(const std::string& text, size_t width);

}  // namespace npu_train
