#include <string>

#include "npu_train/core/read_text.hpp"
#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {
namespace {

class CppTokenizer {
 public:
  explicit CppTokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    size_t i = start_of_text(text_);
    bool line_start = true;
    while (i < text_.size()) {
      const char c = text_[i];
      if (c == '\n') {
        line_start = true;
        ++i;
        continue;
      }
      if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\\') {
        i = c == '\\' ? after_backslash(text_, i) : i + 1;
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
  // Adds a token and returns its end.
  size_t add(TokenKind kind, size_t begin, size_t end, size_t body = 0, size_t body_end = 0) {
    out_.push_back(Token::at(kind, begin, end, body, body_end));
    return end;
  }

  // Returns the end of a line, including its continuation after backslashes.
  size_t line_end(size_t i) const {
    for (;;) {
      const auto end = text_.find('\n', i);
      if (end == std::string_view::npos) return text_.size();
      const size_t last = end > 0 && text_[end - 1] == '\r' ? end - 1 : end;
      if (last == 0 || text_[last - 1] != '\\') return end;
      i = end + 1;
    }
  }

  // Reads the path of an #include; other directives have ordinary tokens.
  size_t directive(size_t i) {
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    const size_t word = end_of_run(text_, i + 1, is_blank), word_end = end_of_run(text_, word, is_name_char);
    const size_t at = end_of_run(text_, word_end, is_blank);
    const auto name = text_.substr(word, word_end - word);
    if (name == "error" || name == "warning" || name == "pragma") return line_end(at);  // prose, or unrelated to CUDA
    if (name != "include" && name != "include_next" && name != "import") return add(TokenKind::Symbol, i, i + 1);
    const char open = at < text_.size() ? text_[at] : '\n';
    if (open != '<' && open != '"') return at;
    const auto close = text_.find_first_of(open == '<' ? ">\n" : "\"\n", at + 1);
    const size_t end = std::min(close, text_.size());
    add(TokenKind::Header, at, std::min(end + 1, text_.size()), at + 1, end);
    return end < text_.size() && text_[end] != '\n' ? end + 1 : end;
  }

  size_t ordinary(size_t i) {
    const char c = text_[i];
    if (is_name_start(c)) return name(i);
    if (is_digit(c)) return number(i);
    if (c == '"' || c == '\'') return quoted(i, i);
    const auto rest = text_.substr(i, 3);
    const bool launch = rest == "<<<" && !(!out_.empty() && out_.back().in(text_) == "operator");
    const bool pair = rest.starts_with("::") || rest.starts_with("->") || rest.starts_with("==") || rest.starts_with("!=");
    return add(TokenKind::Symbol, i, i + (launch ? 3 : pair ? 2 : 1));
  }

  size_t name(size_t i) {
    const size_t stop = end_of_run(text_, i, is_name_char);
    const auto word = text_.substr(i, stop - i);
    if (stop < text_.size() && text_[stop] == '"' && (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R"))
      return raw(i, stop);
    if (stop < text_.size() && (text_[stop] == '"' || text_[stop] == '\'') && (word == "L" || word == "u" || word == "U" || word == "u8"))
      return quoted(i, stop);
    return add(TokenKind::Name, i, stop);
  }

  size_t number(size_t i) {
    size_t stop = i;
    while (stop < text_.size()) {
      const char c = text_[stop];
      const char before = stop > i ? text_[stop - 1] : ' ';
      const bool sign = (c == '+' || c == '-') && (before == 'e' || before == 'E' || before == 'p' || before == 'P');
      const bool separator = c == '\'' && stop + 1 < text_.size() && is_name_char(text_[stop + 1]);
      if (!is_name_char(c) && c != '.' && !sign && !separator) break;
      ++stop;
    }
    return add(TokenKind::Number, i, stop);
  }

  // Reads a raw string: R"mark( ... )mark".
  size_t raw(size_t begin, size_t quote) {
    constexpr size_t kLongestMark = 16;
    const auto mark = text_.substr(quote + 1, kLongestMark + 1);
    const auto length = mark.find('(');
    if (length == std::string_view::npos) return quoted(begin, quote);
    const auto open = quote + 1 + length;
    const auto closing = ")" + std::string(text_.substr(quote + 1, open - quote - 1)) + "\"";
    const auto close = text_.find(closing, open + 1);
    const size_t body_end = std::min(close, text_.size());
    return add(TokenKind::Text, begin, std::min(text_.size(), body_end + closing.size()), open + 1, body_end);
  }

  // Reads a quoted literal, at most up to the end of the line. A character literal is a Number, since it cannot name a device.
  size_t quoted(size_t begin, size_t quote) {
    const char mark = text_[quote];
    const size_t body_end = closing_mark(text_, quote + 1, mark, /*escapes=*/true, /*lines=*/false);
    const bool closed = body_end < text_.size() && text_[body_end] == mark;
    return add(mark == '"' ? TokenKind::Text : TokenKind::Number, begin, body_end + (closed ? 1 : 0), quote + 1, body_end);
  }

  std::string_view text_;
  std::vector<Token> out_;
};

}  // namespace

Tokens cpp_tokens(std::string_view text) { return {text, CppTokenizer(text).run()}; }

}  // namespace npu_train::detail::scan
