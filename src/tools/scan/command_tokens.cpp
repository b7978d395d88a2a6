// Tokenizers for languages of commands: CMake and shells.
#include <string>

#include "npu_train/core/text.hpp"
#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {
namespace {

// Returns the number of '=' in a "[==[" at `i`; -1 if there is no such bracket.
int bracket_level(std::string_view text, size_t i) {
  if (i >= text.size() || text[i] != '[') return -1;
  const size_t at = end_of_run(text, i + 1, [](char c) { return c == '='; });
  return at < text.size() && text[at] == '[' ? static_cast<int>(at - i - 1) : -1;
}

// Returns the position after the "]==]" that closes a bracket of this level.
size_t bracket_end(std::string_view text, size_t i, int level) {
  std::string closing(static_cast<size_t>(level) + 2, '=');
  closing.front() = closing.back() = ']';
  const auto close = text.find(closing, i);
  return close == std::string_view::npos ? text.size() : close + closing.size();
}

bool is_word_char(char c) { return is_name_char(c) || c == '-' || c == '.' || c == '/' || c == ':' || c == '+'; }

class ShellTokenizer {
 public:
  explicit ShellTokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    size_t i = 0;
    while (i < text_.size()) {
      const char c = text_[i];
      if (c == '\n') {
        note_heredoc();
        end_line(i);
        i = heredoc(i + 1);
      } else if (c == '\\') {
        i += 2;
      } else if (c == '#' && (i == 0 || text_[i - 1] == ' ' || text_[i - 1] == '\t' || text_[i - 1] == '\n' || text_[i - 1] == ';')) {
        i = std::min(text_.size(), text_.find('\n', i));
      } else if (c == '"' || c == '\'') {
        i = quoted(i);
      } else if (c == '<' && text_.substr(i).starts_with("<<") && !text_.substr(i).starts_with("<<<")) {
        i = remember_heredoc(i + 2);
      } else if (is_word_char(c)) {
        i = word(i, text_.size(), false);
      } else {
        if (c == '=') out_.push_back(Token::at(TokenKind::Symbol, i, i + 1));
        if (c == ';' || c == '&' || c == '|') end_line(i);  // a new command
        ++i;
      }
    }
    end_line(text_.size());
    return std::move(out_);
  }

 private:
  void end_line(size_t at) {
    if (out_.empty() || out_.back().kind != TokenKind::LineEnd) out_.push_back(Token::at(TokenKind::LineEnd, at, at));
    line_calls_python_ = line_names_python_file_ = false;
  }

  size_t word(size_t i, size_t end, bool prose) {
    const size_t stop = end_of_run(text_.substr(0, end), i, is_word_char);
    auto token = Token::at(TokenKind::Name, i, stop);
    token.prose = prose;
    token.formatted = i > 0 && (text_[i - 1] == '$' || (i > 1 && text_[i - 1] == '{' && text_[i - 2] == '$'));
    out_.push_back(token);
    line_calls_python_ |= calls_python(token.in(text_));
    line_names_python_file_ |= token.in(text_).ends_with(".py");
    return stop;
  }

  // Adds the words inside quotes; if blanks separate them, they are prose.
  size_t quoted(size_t i) {
    const char mark = text_[i];
    const size_t end = closing_mark(text_, i + 1, mark, /*escapes=*/mark == '"'), stop = std::min(end + 1, text_.size());
    if (!out_.empty() && out_.back().kind == TokenKind::Name && out_.back().in(text_) == "-c" && line_calls_python_) {
      out_.push_back(Token::at(TokenKind::Text, i, stop, i + 1, end));
      out_.back().formatted = mark == '"';
    } else {
      words_of(i + 1, end, text_.substr(i + 1, end - i - 1).find_first_of(" \t\n") != std::string_view::npos);
    }
    return stop;
  }

  void words_of(size_t i, size_t end, bool prose) {
    while (i < end) i = is_word_char(text_[i]) ? word(i, end, prose) : i + 1;
  }

  // Whether the word calls Python: "python", "/usr/bin/python3.11", "$PYTHON".
  static bool calls_python(std::string_view word) { return to_lower(word.substr(word.rfind('/') + 1).substr(0, 6)) == "python"; }

  // Decides whether the here-document is Python code. It is if the command before <<, or the last command of the line, calls Python or
  // names a Python file, as in cat <<EOF | python.
  void note_heredoc() { heredoc_is_python_ = !heredoc_.empty() && (heredoc_is_python_ || line_calls_python_ || line_names_python_file_); }

  size_t remember_heredoc(size_t i) {
    if (i < text_.size() && text_[i] == '-') ++i;
    i = end_of_run(text_, i, [](char c) { return c == ' '; });
    const bool marked = i < text_.size() && (text_[i] == '"' || text_[i] == '\'');
    if (marked) ++i;
    const size_t stop = end_of_run(text_, i, is_name_char);
    heredoc_ = text_.substr(i, stop - i);
    note_heredoc();
    return marked && stop < text_.size() ? stop + 1 : stop;
  }

  // Reads the here-document that the last line started: as one Text token if it is Python code, otherwise as prose.
  size_t heredoc(size_t i) {
    if (heredoc_.empty()) return i;
    const auto mark = std::exchange(heredoc_, {});
    const bool python = std::exchange(heredoc_is_python_, false);
    const size_t first = i;
    while (i < text_.size()) {
      const size_t end = std::min(text_.size(), text_.find('\n', i));
      auto line = text_.substr(i, end - i);
      while (!line.empty() && (line.front() == '\t' || line.front() == ' ')) line.remove_prefix(1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line == mark) {
        if (python) out_.push_back(Token::at(TokenKind::Text, first, i, first, i));
        return end;
      }
      if (!python) words_of(i, end, true);
      i = end + 1;
    }
    if (python) out_.push_back(Token::at(TokenKind::Text, first, text_.size(), first, text_.size()));
    return text_.size();
  }

  std::string_view text_;
  std::string_view heredoc_{};
  bool heredoc_is_python_ = false;
  bool line_calls_python_ = false, line_names_python_file_ = false;  // whether a word of the current line does so
  std::vector<Token> out_;
};

}  // namespace

Tokens cmake_tokens(std::string_view text) {
  std::vector<Token> out;
  const std::string_view separators = " \t\r\n()\"#;";
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '#') {
      const int level = bracket_level(text, i + 1);
      i = level >= 0 ? bracket_end(text, i + 1, level) : std::min(text.size(), text.find('\n', i));
    } else if (c == '"') {
      const size_t end = closing_mark(text, i + 1, c);
      out.push_back(Token::at(TokenKind::Text, i, std::min(end + 1, text.size()), i + 1, end));
      i = end + 1;
    } else if (const int level = bracket_level(text, i); level >= 0) {
      const auto end = bracket_end(text, i, level);
      out.push_back(Token::at(TokenKind::Text, i, end, i, end));
      i = end;
    } else if (c == '(' || c == ')') {
      out.push_back(Token::at(TokenKind::Symbol, i, i + 1));
      ++i;
    } else if (separators.find(c) != std::string_view::npos) {
      ++i;
    } else {
      const size_t end = std::min(text.size(), text.find_first_of(separators, i));
      out.push_back(Token::at(TokenKind::Name, i, end));
      i = end;
    }
  }
  out.push_back(Token::at(TokenKind::LineEnd, text.size(), text.size()));
  return {text, std::move(out)};
}

Tokens shell_tokens(std::string_view text) { return {text, ShellTokenizer(text).run()}; }

}  // namespace npu_train::detail::scan
