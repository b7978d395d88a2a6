#include "npu_train/core/message_text.hpp"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "core/facts/other_names.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0 if invalid UTF-8
};

CodePoint decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  uint32_t value = first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = value < (bytes == 2 ? 0x80U : bytes == 3 ? 0x800U : 0x10000U);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, bytes};
}

bool acts_unseen(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x61C || c == 0x200B || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

std::string escaped(uint32_t c, bool is_byte) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return is_byte || c < 0x80 ? printed("\\x%02x", c) : printed("\\u%04x", c);
}

}  // namespace

std::string visible_text(std::string_view text) { return visible_start(text, text.size()); }

std::string visible_lines(std::string_view text) {
  std::string out;
  for (;;) {
    const auto end = text.find_first_of("\n\t");
    out += visible_text(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

std::string visible_start(std::string_view text, size_t longest) {
  std::string out;
  out.reserve(std::min(text.size(), 4 * std::min(longest, text.size())));
  for (size_t count = 0; !text.empty(); ++count) {
    if (count == longest) return out + "...";
    const auto [value, bytes] = decode(text);
    if (bytes == 0) {
      out += escaped(static_cast<unsigned char>(text[0]), true);
    } else if (acts_unseen(value)) {
      out += escaped(value, false);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(std::max<size_t>(1, decode(text).bytes));
  return count;
}

size_t byte_of_point(std::string_view text, size_t points) {
  size_t at = 0;
  for (; at < text.size() && points > 0; --points) at += std::max<size_t>(1, decode(text.substr(at)).bytes);
  return at;
}

std::string shorten_middle(const std::string& text, size_t longest) {
  const auto count = code_points(text);
  if (count <= longest) return text;
  const auto byte_of = [&](size_t point) { return byte_of_point(text, point); };
  const size_t kept = longest - 3;
  return text.substr(0, byte_of(kept - kept / 2)) + "..." + text.substr(byte_of(count - kept / 2));
}

}  // namespace npu_train::detail

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

std::vector<std::string> keys_called(std::string_view name) {
  auto wanted = to_lower(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  std::vector<std::string> out;
  for (const auto& row : detail::facts_rows(facts::other_names, "other_names.tsv", 2))
    if (row[0] == wanted) out.emplace_back(row[1]);
  return out;
}

}  // namespace npu_train
