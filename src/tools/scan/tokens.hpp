// Source text split into tokens, without comments. Accepts any input: a malformed token ends at the end of its line or of the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace npu_train::detail::scan {

enum class TokenKind : uint8_t {
  Name,
  Number,
  Text,     // a string literal or a quoted argument; `body` is the text between the quotes
  Header,   // of an #include; `body` is the path
  Symbol,   // one character, or one of == != <= >= := -> ** // :: <<<
  LineEnd,  // of a logical line of Python, of a command line
};

struct Token {
  TokenKind kind = TokenKind::Symbol;
  bool formatted = false;  // Text: has fields (f-string), whose tokens follow in braces; words of a shell: has a variable before it
  bool prose = false;      // words of a shell: inside of quotes with blanks
  uint32_t begin = 0, length = 0;
  uint32_t body = 0, body_length = 0;

  std::string_view in(std::string_view text) const { return text.substr(begin, length); }
  std::string_view body_in(std::string_view text) const { return text.substr(body, body_length); }
  uint32_t end() const { return begin + length; }
};

/// Texts are shorter than 4 GiB. The last token is a LineEnd.
std::vector<Token> python_tokens(std::string_view text);
std::vector<Token> cpp_tokens(std::string_view text);
std::vector<Token> cmake_tokens(std::string_view text);
/// Words of shell scripts, Dockerfiles and makefiles: runs of letters, digits and _ - . / : + outside of comments. What is handed to Python
/// (python -c "...", here-documents for it or for a file *.py) gives no words but Texts; `formatted` is set between double quotes.
std::vector<Token> shell_tokens(std::string_view text);

inline bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name(char c) { return is_name_start(c) || is_digit(c); }

}  // namespace npu_train::detail::scan
