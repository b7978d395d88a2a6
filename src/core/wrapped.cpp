#include "npu_train/core/wrapped.hpp"

#include <algorithm>
#include <sstream>

#include "npu_train/core/visible_text.hpp"

namespace npu_train {
namespace {

constexpr size_t kDeepest = 26;  // largest column at which a gap still counts as layout

size_t hanging_indent(const std::string& line) {
  const auto begin = std::min(line.find_first_not_of(' '), line.size());
  for (auto gap = line.find("  ", begin); gap < kDeepest; gap = line.find("  ", gap)) {
    gap = line.find_first_not_of(' ', gap);
    if (gap <= kDeepest) return gap;
  }
  return begin + 2;
}

}  // namespace

std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, size_t width) {
  std::string out, line = first;
  bool empty = true;
  std::istringstream words(detail::visible_text(text));
  for (std::string word; words >> word;) {
    if (!empty && width > 0 && detail::code_points(line) + 1 + detail::code_points(word) > width) {
      out += line + "\n";
      line = rest;
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return out + line + "\n";
}

std::string wrapped_line(const std::string& line, size_t width) {
  if (width == 0 || detail::code_points(line) <= width) return line + "\n";
  const std::string indent(std::min(hanging_indent(line), width / 2), ' ');
  std::string out, left = line;
  while (detail::code_points(left) > width) {
    const auto begin = left.find_first_not_of(' ');
    auto blank = left.rfind(' ', detail::byte_of_point(left, width));
    if (blank == std::string::npos || blank < begin) blank = left.find(' ', begin);  // the word is longer than the line
    if (blank == std::string::npos) break;
    out += left.substr(0, left.find_last_not_of(' ', blank) + 1) + "\n";
    const auto next = left.find_first_not_of(' ', blank);
    if (next == std::string::npos) return out;
    left = indent + left.substr(next);
  }
  return out + left + "\n";
}

std::string wrapped_lines(const std::string& text, size_t width) {
  std::string out, line;
  std::istringstream lines(text);
  while (std::getline(lines, line)) out += wrapped_line(line, width);
  return out;
}

}  // namespace npu_train
