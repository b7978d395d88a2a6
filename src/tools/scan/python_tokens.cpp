#include <iterator>

#include "npu_train/core/read_text.hpp"
#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {
namespace {

// Nested fields of f-strings below this depth are plain text.
constexpr int kDeepest = 4;
// Limit of bytes that are searched in vain for the ends of fields. Beyond it, f-strings are read as plain text.
constexpr size_t kMostWasted = size_t{32} << 20;

class PythonTokenizer {
 public:
  explicit PythonTokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    run(start_of_text(text_), text_.size(), 0);
    if (out_.empty()) add(TokenKind::LineEnd, text_.size(), text_.size());
    return std::move(out_);
  }

 private:
  void run(size_t begin, size_t end, int level) {
    size_t i = begin;
    int brackets = 0;
    while (i < end) {
      const char c = text_[i];
      if (c == '\n') {
        ++i;
        if (begins_statement(i)) brackets = 0;  // limits the effect of a bracket that is never closed
        if (brackets == 0 && level == 0) end_line(i - 1);
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
        ++i;
      } else if (c == '\\') {
        i = std::min(end, after_backslash(text_, i));
      } else if (c == '#') {
        i = std::min(end, text_.substr(0, end).find('\n', i));
      } else if (is_name_start(c)) {
        i = name(i, end, level);
      } else if (is_digit(c)) {
        i = number(i, end);
      } else if (c == '"' || c == '\'') {
        i = string(i, i, end, false, level);
      } else {
        if (c == '(' || c == '[' || c == '{') ++brackets;
        if ((c == ')' || c == ']' || c == '}') && brackets > 0) --brackets;
        i = symbol(i, end);
      }
    }
    if (level == 0) end_line(end);
  }

  bool begins_statement(size_t i) const {
    const auto rest = text_.substr(i, 7);
    return rest.starts_with("import ") || rest.starts_with("def ") || rest.starts_with("class ");
  }

  void add(TokenKind kind, size_t begin, size_t end) { out_.push_back(Token::at(kind, begin, end)); }

  void end_line(size_t at) {
    if (!out_.empty() && out_.back().kind != TokenKind::LineEnd) add(TokenKind::LineEnd, at, at);
  }

  size_t name(size_t i, size_t end, int level) {
    const size_t stop = end_of_run(text_.substr(0, end), i, is_name_char);
    const auto word = text_.substr(i, stop - i);
    const bool quoted = stop < end && (text_[stop] == '"' || text_[stop] == '\'');
    if (quoted && word.size() <= 2 && word.find_first_not_of("rRbBuUfFtT") == std::string_view::npos)
      return string(i, stop, end, word.find_first_of("fFtT") != std::string_view::npos, level);
    add(TokenKind::Name, i, stop);
    return stop;
  }

  size_t number(size_t i, size_t end) {
    size_t stop = i;
    while (stop < end && (is_name_char(text_[stop]) || text_[stop] == '.' ||
                          ((text_[stop] == '+' || text_[stop] == '-') && (text_[stop - 1] == 'e' || text_[stop - 1] == 'E'))))
      ++stop;
    add(TokenKind::Number, i, stop);
    return stop;
  }

  size_t symbol(size_t i, size_t end) {
    static constexpr std::string_view kPairs[] = {"==", "!=", "<=", ">=", ":=", "->", "**", "//"};
    const bool pair = std::count(std::begin(kPairs), std::end(kPairs), text_.substr(i, std::min<size_t>(2, end - i))) > 0;
    add(TokenKind::Symbol, i, i + (pair ? 2 : 1));
    return i + (pair ? 2 : 1);
  }

  // Reads the string whose quotes begin at `quote` and whose prefix begins at `begin`.
  size_t string(size_t begin, size_t quote, size_t end, bool fields, int level) {
    std::vector<std::pair<size_t, size_t>> ranges;
    const auto [body, body_end, stop] = extent(quote, end, fields && level < kDeepest && wasted_ < kMostWasted, level, &ranges);
    out_.push_back(Token::at(TokenKind::Text, begin, stop, body, body_end));
    out_.back().formatted = fields;
    for (const auto& [first, last] : ranges) {
      add(TokenKind::Symbol, first - 1, first);
      run(first, last, level + 1);
      add(TokenKind::Symbol, last, last + 1);
    }
    return stop;
  }

  struct Extent {
    size_t body, body_end, stop;
  };

  // Returns the end of a string; with `fields`, also the ranges inside its braces.
  Extent extent(size_t quote, size_t end, bool fields, int level, std::vector<std::pair<size_t, size_t>>* ranges) const {
    const char mark = text_[quote];
    const bool triple = quote + 2 < end && text_[quote + 1] == mark && text_[quote + 2] == mark;
    const size_t body = quote + (triple ? 3 : 1);
    for (size_t i = body; i < end;) {
      const char c = text_[i];
      if (c == '\\') {
        i = after_backslash(text_, i);
      } else if (c == mark && !triple) {
        return {body, i, i + 1};
      } else if (c == mark && i + 2 < end && text_[i + 1] == mark && text_[i + 2] == mark) {
        return {body, i, i + 3};
      } else if (c == '\n' && !triple) {
        return {body, i, i};
      } else if (fields && c == '{') {
        if (i + 1 < end && text_[i + 1] == '{') {
          i += 2;
          continue;
        }
        size_t looked_to = i;
        const size_t close = field_end(i + 1, end, triple, level, looked_to);
        fields = close < end;  // without its end, the field and the rest are plain text
        if (!fields) wasted_ += looked_to - i;
        if (fields && ranges != nullptr) ranges->emplace_back(i + 1, close);
        i = fields ? close + 1 : i + 1;
      } else {
        ++i;
      }
    }
    return {body, end, end};
  }

  // Returns the position of the brace that closes the field at `i`; `end` if there is none. Quotes in the format after a colon are ordinary
  // characters.
  size_t field_end(size_t i, size_t end, bool lines, int level, size_t& looked_to) const {
    int depth = 0;
    bool format = false;
    for (; i < end; looked_to = i) {
      const char c = text_[i];
      if (c == '\n' && !lines) return end;
      if (!format && (c == '"' || c == '\'')) {
        i = std::max(i + 1, extent(i, end, false, level + 1, nullptr).stop);
        continue;
      }
      if (c == ':' && depth == 0) format = true;
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == '}' && depth == 0) return i;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (depth < 0) return end;
      ++i;
    }
    return end;
  }

  std::string_view text_;
  std::vector<Token> out_;
  mutable size_t wasted_ = 0;
};

}  // namespace

Tokens python_tokens(std::string_view text) { return {text, PythonTokenizer(text).run()}; }

}  // namespace npu_train::detail::scan
