#include "scan/visible.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace npu_train::detail::scan {
namespace {

// Bytes of the code point at the start of `text` and its value; 1 byte and `valid` false where it is not UTF-8.
struct Letter {
  uint32_t value = 0;
  size_t bytes = 1;
  bool valid = true;
};

Letter first_letter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {first, 1, false};
  uint32_t value = first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {first, 1, false};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool sound = value >= (bytes == 2   ? 0x80U
                               : bytes == 3 ? 0x800U
                                            : 0x10000U) &&
                     value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  return sound ? Letter{value, bytes, true} : Letter{first, 1, false};
}

bool acts_unseen(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x61C || c == 0x200B || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

std::string escape(const Letter& letter) {
  if (letter.value == '\n') return "\\n";
  if (letter.value == '\t') return "\\t";
  if (letter.value == '\r') return "\\r";
  std::array<char, 16> out{};
  std::snprintf(out.data(), out.size(), letter.valid && letter.value > 0xFF ? "\\u%04x" : "\\x%02x", letter.value);
  return out.data();
}

}  // namespace

std::string visible(std::string_view text) { return visible_start(text, text.size()); }

std::string visible_start(std::string_view text, size_t longest) {
  std::string out;
  for (size_t count = 0; !text.empty(); ++count) {
    if (count == longest) return out + "...";
    const auto letter = first_letter(text);
    if (!letter.valid || acts_unseen(letter.value)) {
      out += escape(letter);
    } else {
      out += text.substr(0, letter.bytes);
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

size_t columns_of(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_letter(text).bytes);
  return count;
}

}  // namespace npu_train::detail::scan
