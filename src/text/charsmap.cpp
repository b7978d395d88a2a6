#include "text/charsmap.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/text/utf8.hpp"

namespace npu_train::detail {
namespace {

constexpr uint32_t kValue = uint32_t{1} << 31;  // the unit is a value, not a node

uint32_t value_of(uint32_t unit) { return unit & ~kValue; }
// Returns the label of a node, or, for a value, a number that no byte equals.
uint32_t label_of(uint32_t unit) { return unit & (kValue | 0xFF); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
// Returns the offset of a node's children. The index of a child is the XOR of the node's index, this offset and the child's label.
uint32_t offset_of(uint32_t unit) { return unit >> 10 << (unit >> 9 & 1) * 8; }

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t out = 0;
  for (size_t i = 4; i-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[at + i]);
  return out;
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  check(bytes.size() >= 4, ErrorKind::Data, "tokenizer", where, ": ", bytes.size(), " bytes; allowed: at least 4");
  const size_t size = little_endian(bytes, 0);
  check(size >= 4 && size % 4 == 0 && size <= bytes.size() - 4, ErrorKind::Data, "tokenizer", where, ": a trie of ", size, " bytes in ",
        bytes.size() - 4, " bytes; allowed: a multiple of 4 that is not larger");
  replacements_ = bytes.substr(4 + size);
  const auto bad = first_invalid_byte(replacements_);
  check(bad == std::string_view::npos, ErrorKind::Data, "tokenizer", where, ": byte ", bad, " of the replacements is not UTF-8");
  units_.reserve(size / 4);
  for (size_t i = 0; i < size; i += 4) units_.push_back(little_endian(bytes, 4 + i));
  for (size_t i = 0; i < units_.size(); ++i) {
    const auto unit = units_[i];
    if ((unit & kValue) != 0 || !has_value(unit)) continue;
    const size_t at = i ^ offset_of(unit);
    const bool is_value = at < units_.size() && (units_[at] & kValue) != 0;
    const size_t begin = is_value ? value_of(units_[at]) : 0;
    check(is_value && begin < replacements_.size() && (static_cast<unsigned char>(replacements_[begin]) & 0xC0) != 0x80, ErrorKind::Data,
          "tokenizer", where, ": unit ", i, " of the trie has no replacement");
  }
}

// Calls `found(bytes, value)` for each text of the trie with which `text` begins, shortest first, until `found` returns false. The search
// also ends at a zero byte in `text`, at the end of `text` and after kLongest bytes, even in a trie with cycles.
template <class Found>
void Charsmap::each(std::string_view text, Found&& found) const {
  if (units_.empty()) return;
  const size_t size = std::min(text.size(), kLongest);
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < size && text[i] != 0; ++i) {
    const uint32_t byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return;
    const auto unit = units_[node];
    node ^= offset_of(unit);
    if (has_value(unit) && !found(i + 1, value_of(units_[node]))) return;
  }
}

Charsmap::Match Charsmap::match(size_t bytes, uint32_t value) const {
  const auto text = std::string_view(replacements_).substr(value);
  return {bytes, text.substr(0, text.find('\0'))};
}

Charsmap::Match Charsmap::shortest(std::string_view text) const {
  Match out;
  each(text, [&](size_t bytes, uint32_t value) {
    out = match(bytes, value);
    return false;
  });
  return out;
}

Charsmap::Match Charsmap::longest(std::string_view text) const {
  size_t most = 0;
  uint32_t last = 0;
  each(text, [&](size_t bytes, uint32_t value) {
    most = bytes;
    last = value;
    return true;
  });
  return most == 0 ? Match{} : match(most, last);
}

}  // namespace npu_train::detail
