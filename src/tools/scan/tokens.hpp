// Splits source text into tokens, without comments. Accepts any input: a malformed token ends at the end of its line or of the text.
#pragma once

#include <cstdint>
#include <string_view>
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
  bool formatted = false;  // Text: an f-string, whose fields follow as tokens in braces; words of a shell: preceded by a variable
  bool prose = false;      // words of a shell: inside quotes with blanks
  uint32_t begin = 0, length = 0;
  uint32_t body = 0, body_length = 0;

  std::string_view in(std::string_view text) const { return text.substr(begin, length); }
  std::string_view body_in(std::string_view text) const { return text.substr(body, body_length); }
  uint32_t end() const { return begin + length; }
};

/// Texts must be shorter than 4 GiB. The last token is a LineEnd.
std::vector<Token> python_tokens(std::string_view text);
std::vector<Token> cpp_tokens(std::string_view text);
std::vector<Token> cmake_tokens(std::string_view text);
/// Returns the words of shell scripts, Dockerfiles and makefiles: runs of letters, digits and _ - . / : + outside of comments. Code for
/// Python (python -c "...", here-documents for it or for a file *.py) results in Text tokens; `formatted` is set between double quotes.
std::vector<Token> shell_tokens(std::string_view text);

inline bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name(char c) { return is_name_start(c) || is_digit(c); }

}  // namespace npu_train::detail::scan
