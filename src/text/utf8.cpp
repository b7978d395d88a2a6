#include "npu_train/text/utf8.hpp"

namespace npu_train::detail {
namespace {

struct ByteSequence {
  size_t bytes = 0;    // size of the longest prefix that could begin a code point, at least 1
  bool valid = false;  // the prefix is a complete code point
};

// The ranges of well-formed bytes: The Unicode Standard 15, table 3-7.
ByteSequence sequence_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < bytes; ++i)
    if (i >= text.size() || byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {i, false};
  return {bytes, true};
}

}  // namespace

void append_point(std::string& out, char32_t point) {
  const auto add = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (point < 0x80) return add(point);
  if (point < 0x800) {
    add(0xC0 | point >> 6);
  } else if (point < 0x10000) {
    add(0xE0 | point >> 12);
    add(0x80 | (point >> 6 & 0x3F));
  } else {
    add(0xF0 | point >> 18);
    add(0x80 | (point >> 12 & 0x3F));
    add(0x80 | (point >> 6 & 0x3F));
  }
  add(0x80 | (point & 0x3F));
}

size_t first_invalid_byte(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const auto next = sequence_at(text.substr(at));
    if (!next.valid) return at;
    at += next.bytes;
  }
  return std::string_view::npos;
}

std::string with_replacements(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto next = sequence_at(bytes);
    out += next.valid ? bytes.substr(0, next.bytes) : std::string_view("\xEF\xBF\xBD");
    bytes.remove_prefix(next.bytes);
  }
  return out;
}

}  // namespace npu_train::detail
