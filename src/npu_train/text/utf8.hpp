/// Functions for UTF-8 that need no Unicode tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// Returns the code point at `at` of valid UTF-8, and moves `at` behind it.
inline char32_t next_point(std::string_view text, size_t& at) {
  const auto byte = [&] { return static_cast<char32_t>(static_cast<unsigned char>(text[at++])); };
  const char32_t first = byte();
  if (first < 0x80) return first;
  if (first < 0xE0) return (first & 0x1F) << 6 | (byte() & 0x3F);
  if (first < 0xF0) {
    const char32_t high = (first & 0x0F) << 12 | (byte() & 0x3F) << 6;
    return high | (byte() & 0x3F);
  }
  char32_t high = (first & 0x07) << 18 | (byte() & 0x3F) << 12;
  high |= (byte() & 0x3F) << 6;
  return high | (byte() & 0x3F);
}

/// Returns the first position after `at` where a code point of valid UTF-8 begins.
inline size_t behind_point(std::string_view text, size_t at) {
  for (++at; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; ++at) {
  }
  return at;
}

void append_point(std::string& out, char32_t point);

/// Returns the position of the first byte that is not UTF-8 (npos: none).
size_t first_invalid_byte(std::string_view text);

/// Returns the text with U+FFFD for each maximal part that is not UTF-8 (The Unicode Standard 15, section 3.9, table 3-8).
std::string with_replacements(std::string_view bytes);

}  // namespace npu_train::detail
