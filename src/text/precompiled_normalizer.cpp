#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/charsmap.hpp"
#include "text/json_fields.hpp"
#include "text/regex.hpp"
#include "text/tokenizer_steps.hpp"
#include "text/unicode.hpp"

namespace npu_train::detail {
namespace {

// Returns the value of a digit of base64 (RFC 4648, section 4); 64 for another character.
unsigned base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0') + 52;
  return c == '+' ? 62 : c == '/' ? 63 : 64;
}

// Returns nullopt for a text that is not base64 with padding, or that has non-zero bits after the last byte.
std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  unsigned bits = 0, count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const unsigned digit = base64_digit(c);
    if (digit > 63) return std::nullopt;
    bits = (bits << 6 | digit) & 0xFFFF;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(static_cast<unsigned char>(bits >> count & 0xFF));
  }
  if ((bits & ((1U << count) - 1)) != 0) return std::nullopt;
  return out;
}

// Follows the package tokenizers: looks up each grapheme of fewer than 6 bytes and, if the grapheme is longer or has no replacement, each
// of its characters. A grapheme or character that begins with a text of the map is replaced completely, by the replacement of the shortest
// such text. The accent of a grapheme may therefore vanish.
class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {}

  std::string normalized(std::string text) const override {
    constexpr size_t kLongestGrapheme = 5;  // bytes
    const std::string_view whole = text;
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0, end = 0; at < whole.size(); at = end) {
      end = behind_grapheme(whole, at);
      const auto grapheme = whole.substr(at, end - at);
      if (grapheme.size() > kLongestGrapheme || !append(grapheme, out)) append_characters(grapheme, out);
      check_text_size(out.size());
    }
    return out;
  }

 private:
  // Returns false, and appends nothing, if the text has no replacement.
  bool append(std::string_view text, std::string& out) const {
    const auto match = map_.shortest(text);
    if (match.bytes > 0) out += match.text;
    return match.bytes > 0;
  }

  void append_characters(std::string_view text, std::string& out) const {
    for (size_t at = 0, end = 0; at < text.size(); at = end) {
      end = behind_point(text, at);
      const auto character = text.substr(at, end - at);
      if (!append(character, out)) out += character;
      check_text_size(out.size());
    }
  }

  Charsmap map_;
};

}  // namespace

std::unique_ptr<Normalizer> read_precompiled_normalizer(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  fields.unused("type");
  const auto place = fields.where("precompiled_charsmap");
  const auto bytes = bytes_of_base64(fields.text("precompiled_charsmap"));
  check(bytes.has_value(), ErrorKind::Data, "tokenizer", place, " is not base64");
  fields.finish();
  return std::make_unique<PrecompiledNormalizer>(Charsmap(*bytes, place));
}

}  // namespace npu_train::detail
