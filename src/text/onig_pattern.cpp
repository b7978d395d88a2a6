// Translates patterns from the syntax of Oniguruma (Ruby) to that of PCRE2.
#include <algorithm>
#include <array>
#include <cctype>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/regex.hpp"

namespace npu_train::detail {
namespace {

constexpr std::array kCategories{"L",  "Ll", "Lu", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                 "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co"};
constexpr std::array kScripts{"Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek",   "Gujarati",
                              "Han",    "Hangul",   "Hebrew",  "Hiragana", "Kannada",    "Katakana", "Khmer",    "Latin",   "Malayalam",
                              "Tamil",  "Telugu",   "Thai",    "Tibetan",  "Myanmar",    "Lao",      "Sinhala",  "Gurmukhi"};
// The characters with the property White_Space. PCRE2's \s also matches U+180E.
constexpr const char* kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr const char* kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";  // also some other numbers of Latin-1

template <class Names>
bool is_one_of(const std::string& name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {
    const auto bad = first_invalid_byte(pattern);
    check(bad == std::string_view::npos, ErrorKind::Data, "tokenizer", where, ": byte ", bad, " of the pattern is not UTF-8");
  }

  std::string run() {
    while (at_ < in_.size()) element();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::Data, "tokenizer",
                str_cat(where_, ": ", what, " in the pattern '", visible_start(in_, 200), "', at byte ", at_,
                        ", is not supported; allowed: literals, classes, groups, lookaround, alternatives and quantifiers"));
  }

  bool follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(size_t bytes) {
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }

  void element() {
    const char c = in_[at_];
    if (c == '(') return group();
    if (c == '[') return char_class();
    if (c == '\\') return escape(/*in_class=*/false);
    if (c == '{') return interval();
    if (c == '}' || c == ']') {
      out_ += '\\';
      return copy(1);
    }
    copy(1);
    if (c == '*' || c == '+' || c == '?') after_quantifier();
  }

  // "?" makes a quantifier lazy, and "+" makes it possessive. Any other quantifier here would repeat the repetition.
  void after_quantifier() {
    if (at_ < in_.size() && (in_[at_] == '?' || in_[at_] == '+')) copy(1);
    if (at_ < in_.size() && (in_[at_] == '*' || in_[at_] == '+' || in_[at_] == '?' || in_[at_] == '{')) refuse("a repeated quantifier");
  }

  void group() {
    if (!follows("(?")) return copy(1);
    for (const std::string_view start : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
      if (follows(start)) return copy(start.size());
    // In the middle of a pattern, the two syntaxes differ in what such an option applies to.
    if (at_ == 0 && follows("(?i)")) return copy(4);
    refuse("the group '" + std::string(in_.substr(at_, 4)) + "'");
  }

  void interval() {
    const auto end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse("'{'");
    const auto inside = in_.substr(at_ + 1, end - at_ - 1);
    const auto comma = std::min(inside.find(','), inside.size());
    const auto digits = [](std::string_view text) { return std::all_of(text.begin(), text.end(), [](char c) { return std::isdigit(c); }); };
    const auto low = inside.substr(0, comma), high = inside.substr(std::min(comma + 1, inside.size()));
    if (low.empty() || !digits(low) || !digits(high)) refuse("'{'");
    copy(end + 1 - at_);
    if (at_ < in_.size() && in_[at_] == '?' && comma < inside.size()) copy(1);
    if (at_ < in_.size() && (in_[at_] == '*' || in_[at_] == '+' || in_[at_] == '?' || in_[at_] == '{')) refuse("a quantifier after '{}'");
  }

  void char_class() {
    copy(1);
    if (follows("^")) copy(1);
    if (follows("]")) refuse("']' at the beginning of a class");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '[') refuse("a class inside of a class");
      if (follows("&&")) refuse("'&&'");
      in_[at_] == '\\' ? escape(/*in_class=*/true) : copy(1);
    }
    if (at_ == in_.size()) refuse("'[' without ']'");
    copy(1);
  }

  void escape(bool in_class) {
    if (at_ + 1 == in_.size()) refuse("'\\' at the end");
    const char c = in_[at_ + 1];
    const auto put = [&](const std::string& text, size_t bytes) {
      out_ += text;
      at_ += bytes;
    };
    const auto put_class = [&](const std::string& members, bool negated) {
      if (in_class && negated) refuse(std::string("'\\") + c + "' inside of a class");
      put(in_class ? members : (negated ? "[^" : "[") + members + "]", 2);
    };
    switch (c) {
      case 's':
        return put_class(kSpaces, false);
      case 'S':
        if (in_class) return put("\\P{White_Space}", 2);
        return put_class(kSpaces, true);
      case 'w':
      case 'W':
        return put_class(kWord, c == 'W');
      case 'd':
      case 'D':
        return put(c == 'd' ? "\\p{Nd}" : "\\P{Nd}", 2);
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      case 'v':
        return put("\\x{b}", 2);
      case 'A':
      case 'z':
        if (!in_class) return copy(2);
        break;
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'x':
      case 'u':
        return code_point(c == 'u');
      default:
        if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) return copy(2);
    }
    refuse(std::string("'\\") + c + "'");
  }

  void property(bool negated) {
    const auto end = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) refuse("'\\p' without '{}'");
    auto name = std::string(in_.substr(at_ + 3, end - at_ - 3));
    if (name.starts_with('^')) {
      name.erase(0, 1);
      negated = !negated;
    }
    const bool script = is_one_of(name, kScripts);
    if (!script && !is_one_of(name, kCategories)) refuse("the property '" + name + "'");
    out_ += std::string(negated ? "\\P{" : "\\p{") + (script ? "sc:" : "") + name + "}";
    at_ = end + 1;
  }

  // Translates code points such as \x41, \x{1F600} and \u00e9.
  void code_point(bool four_digits) {
    const bool braces = !four_digits && in_.substr(at_ + 2, 1) == "{";
    const size_t begin = at_ + (braces ? 3 : 2), close = braces ? in_.find('}', begin) : std::string_view::npos;
    const auto digits =
        braces ? in_.substr(begin, close == std::string_view::npos ? 0 : close - begin) : in_.substr(begin, four_digits ? 4 : 2);
    const bool hex =
        !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) { return std::isxdigit(static_cast<unsigned char>(c)); });
    if (!hex || digits.size() > 6 || (!braces && digits.size() != (four_digits ? 4 : 2))) refuse("the code point");
    if (!braces && !four_digits && digits[0] >= '8') refuse("a byte of a character");
    out_ += str_cat("\\x{", digits, "}");
    at_ = begin + digits.size() + (braces ? 1 : 0);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
};

}  // namespace

std::string pcre_pattern(std::string_view onig, const std::string& where) { return Translation(onig, where).run(); }

std::string quoted_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain) {
      out += c;
    } else {
      out += str_cat("\\x{", std::hex, static_cast<unsigned>(byte), "}");
    }
  }
  return out;
}

}  // namespace npu_train::detail
