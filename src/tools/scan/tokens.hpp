// Splits source text into tokens, without comments. Accepts any input: a malformed token ends at the end of its line or of the text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train::detail::scan {

enum class TokenKind : uint8_t {
  Name,
  Number,
  Text,     // a string literal or a quoted argument; `body` is the text between the quotes
  Header,   // path of an #include, in `body`
  Symbol,   // one character, or one of == != <= >= := -> ** // :: <<<
  LineEnd,  // end of a logical line of Python, or of a command line
};

struct Token {
  TokenKind kind = TokenKind::Symbol;
  bool formatted = false;  // Text: an f-string, whose fields follow as tokens in braces; words of a shell: a variable's name, after $ or ${
  bool prose = false;      // words of a shell: part of a quoted text with blanks, or of a here-document that is not Python
  uint32_t begin = 0, length = 0;
  uint32_t body = 0, body_length = 0;

  static Token at(TokenKind kind, size_t begin, size_t end, size_t body = 0, size_t body_end = 0) {
    return {.kind = kind,
            .begin = static_cast<uint32_t>(begin),
            .length = static_cast<uint32_t>(end - begin),
            .body = static_cast<uint32_t>(body),
            .body_length = static_cast<uint32_t>(body_end - body)};
  }
  std::string_view in(std::string_view text) const { return text.substr(begin, length); }
  std::string_view body_in(std::string_view text) const { return text.substr(body, body_length); }
  uint32_t end() const { return begin + length; }
};

/// A text, which must outlive this object, and its tokens, of which the last is a LineEnd. A position beyond the last token has no kind and
/// no word.
class Tokens {
 public:
  Tokens(std::string_view text, std::vector<Token> tokens) : text_(text), tokens_(std::move(tokens)) {}

  std::string_view text() const { return text_; }
  size_t size() const { return tokens_.size(); }
  const Token& operator[](size_t i) const { return tokens_[i]; }
  bool is(size_t i, std::string_view word) const { return i < tokens_.size() && tokens_[i].in(text_) == word; }
  bool is_kind(size_t i, TokenKind kind) const { return i < tokens_.size() && tokens_[i].kind == kind; }
  bool is_name(size_t i) const { return is_kind(i, TokenKind::Name); }
  bool is_text(size_t i) const { return is_kind(i, TokenKind::Text); }
  bool is_line_end(size_t i) const { return is_kind(i, TokenKind::LineEnd); }
  std::string_view word(size_t i) const { return tokens_[i].in(text_); }
  std::string_view body(size_t i) const { return tokens_[i].body_in(text_); }
  uint32_t begin(size_t i) const { return tokens_[i].begin; }
  /// Returns the number of bytes from the start of token `first` to the end of token `last`.
  uint32_t span(size_t first, size_t last) const { return tokens_[last].end() - tokens_[first].begin; }

 private:
  std::string_view text_;
  std::vector<Token> tokens_;
};

/// Texts must be shorter than 4 GiB.
Tokens python_tokens(std::string_view text);
Tokens cpp_tokens(std::string_view text);
Tokens cmake_tokens(std::string_view text);
/// Returns the words of shell scripts, Dockerfiles and makefiles: runs of letters, digits and _ - . / : + outside of comments. Python code
/// (python -c "...", here-documents for Python or for a file *.py) becomes Text tokens, with `formatted` set between double quotes.
Tokens shell_tokens(std::string_view text);

inline bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

/// Returns the position after the characters from `i` on for which `accepts` is true.
template <class Accepts>
size_t end_of_run(std::string_view text, size_t i, Accepts accepts) {
  while (i < text.size() && accepts(text[i])) ++i;
  return i;
}
/// Returns the position after a backslash and the escaped character, or the escaped line end, which may have two characters.
inline size_t after_backslash(std::string_view text, size_t i) {
  return std::min(text.size(), i + (text.substr(i + 1).starts_with("\r\n") ? 3 : 2));
}
/// Returns the position of the `mark` that closes a text at `i`; if it is missing, the end of the line or of `text`.
inline size_t closing_mark(std::string_view text, size_t i, char mark, bool escapes = true, bool lines = true) {
  while (i < text.size() && text[i] != mark && (lines || text[i] != '\n'))
    i = text[i] == '\\' && escapes ? after_backslash(text, i) : i + 1;
  return i;
}

}  // namespace npu_train::detail::scan
