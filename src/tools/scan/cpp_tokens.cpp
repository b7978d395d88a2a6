#include <algorithm>
#include <string>

#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {
namespace {

class CppTokenizer {
 public:
  explicit CppTokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    size_t i = text_.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    bool line_start = true;
    while (i < text_.size()) {
      const char c = text_[i];
      if (c == '\n') {
        line_start = true;
        ++i;
        continue;
      }
      if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\\') {
        ++i;
        if (c == '\\') i = std::min(text_.size(), i + (text_.substr(i).starts_with("\r\n") ? 2 : 1));
        continue;
      }
      if (text_.substr(i).starts_with("//")) {
        i = line_end(i);
      } else if (text_.substr(i).starts_with("/*")) {
        const auto close = text_.find("*/", i + 2);
        i = close == std::string_view::npos ? text_.size() : close + 2;
        continue;
      } else if (c == '#' && line_start) {
        i = directive(i);
      } else {
        i = ordinary(i);
      }
      line_start = false;
    }
    add(TokenKind::LineEnd, text_.size(), text_.size());
    return std::move(out_);
  }

 private:
  Token& add(TokenKind kind, size_t begin, size_t end) {
    out_.push_back({.kind = kind, .begin = static_cast<uint32_t>(begin), .length = static_cast<uint32_t>(end - begin)});
    return out_.back();
  }
  void set_body(Token& token, size_t begin, size_t end) {
    token.body = static_cast<uint32_t>(begin);
    token.body_length = static_cast<uint32_t>(end - begin);
  }

  // Returns the end of a line, which backslashes may continue.
  size_t line_end(size_t i) const {
    for (;;) {
      const auto end = text_.find('\n', i);
      if (end == std::string_view::npos) return text_.size();
      const size_t last = end > 0 && text_[end - 1] == '\r' ? end - 1 : end;
      if (last == 0 || text_[last - 1] != '\\') return end;
      i = end + 1;
    }
  }

  // Reads the path of an #include; tokens of other directives are ordinary ones.
  size_t directive(size_t i) {
    size_t at = i + 1;
    const auto blanks = [&] {
      while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    };
    blanks();
    const size_t word = at;
    while (at < text_.size() && is_name(text_[at])) ++at;
    const auto name = text_.substr(word, at - word);
    if (name == "error" || name == "warning" || name == "pragma") return line_end(at);  // prose, or unrelated to CUDA
    if (name != "include" && name != "include_next" && name != "import") {
      add(TokenKind::Symbol, i, i + 1);
      return word;
    }
    blanks();
    const char open = at < text_.size() ? text_[at] : '\n';
    if (open != '<' && open != '"') return at;
    const auto close = text_.find_first_of(open == '<' ? ">\n" : "\"\n", at + 1);
    const size_t end = close == std::string_view::npos ? text_.size() : close;
    set_body(add(TokenKind::Header, at, std::min(end + 1, text_.size())), at + 1, end);
    return end < text_.size() && text_[end] != '\n' ? end + 1 : end;
  }

  size_t ordinary(size_t i) {
    const char c = text_[i];
    if (is_name_start(c)) return name(i);
    if (is_digit(c)) return number(i);
    if (c == '"' || c == '\'') return quoted(i, i);
    const auto rest = text_.substr(i, 3);
    const bool launch = rest == "<<<" && !(out_.size() > 0 && out_.back().in(text_) == "operator");
    size_t length = 1;
    if (launch)
      length = 3;
    else if (rest.starts_with("::") || rest.starts_with("->") || rest.starts_with("==") || rest.starts_with("!="))
      length = 2;
    add(TokenKind::Symbol, i, i + length);
    return i + length;
  }

  size_t name(size_t i) {
    size_t stop = i;
    while (stop < text_.size() && is_name(text_[stop])) ++stop;
    const auto word = text_.substr(i, stop - i);
    if (stop < text_.size() && text_[stop] == '"' && (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R"))
      return raw(i, stop);
    if (stop < text_.size() && (text_[stop] == '"' || text_[stop] == '\'') && (word == "L" || word == "u" || word == "U" || word == "u8"))
      return quoted(i, stop);
    add(TokenKind::Name, i, stop);
    return stop;
  }

  size_t number(size_t i) {
    size_t stop = i;
    while (stop < text_.size()) {
      const char c = text_[stop];
      const char before = stop > i ? text_[stop - 1] : ' ';
      const bool sign = (c == '+' || c == '-') && (before == 'e' || before == 'E' || before == 'p' || before == 'P');
      const bool separator = c == '\'' && stop + 1 < text_.size() && is_name(text_[stop + 1]);
      if (!is_name(c) && c != '.' && !sign && !separator) break;
      ++stop;
    }
    add(TokenKind::Number, i, stop);
    return stop;
  }

  // Reads R"mark( ... )mark".
  size_t raw(size_t begin, size_t quote) {
    constexpr size_t kLongestMark = 16;
    const auto mark = text_.substr(quote + 1, kLongestMark + 1);
    const auto length = mark.find('(');
    if (length == std::string_view::npos) return quoted(begin, quote);
    const auto open = quote + 1 + length;
    const auto closing = ")" + std::string(text_.substr(quote + 1, open - quote - 1)) + "\"";
    const auto close = text_.find(closing, open + 1);
    const size_t body_end = close == std::string_view::npos ? text_.size() : close;
    const size_t stop = close == std::string_view::npos ? text_.size() : close + closing.size();
    set_body(add(TokenKind::Text, begin, stop), open + 1, body_end);
    return stop;
  }

  // Reads a quoted literal, up to the end of the line at most. A character literal is a Number, since it cannot name a device.
  size_t quoted(size_t begin, size_t quote) {
    const char mark = text_[quote];
    size_t i = quote + 1;
    while (i < text_.size() && text_[i] != mark && text_[i] != '\n') i += text_[i] == '\\' ? 2 : 1;
    const size_t body_end = std::min(i, text_.size());
    const size_t stop = body_end < text_.size() && text_[body_end] == mark ? body_end + 1 : body_end;
    set_body(add(mark == '"' ? TokenKind::Text : TokenKind::Number, begin, stop), quote + 1, body_end);
    return stop;
  }

  std::string_view text_;
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> cpp_tokens(std::string_view text) { return CppTokenizer(text).run(); }

}  // namespace npu_train::detail::scan
