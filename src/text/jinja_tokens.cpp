#include <algorithm>
#include <cctype>

#include "npu_train/core/error.hpp"
#include "text/jinja.hpp"

namespace npu_train::detail {
namespace {

bool is_blank_byte(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class JinjaLexer {
 public:
  JinjaLexer(std::string_view source, const std::string& where) : where_(where) {
    for (size_t i = 0; i < source.size(); ++i)
      if (!(source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n')) in_ += source[i];
    if (in_.ends_with('\n')) in_.pop_back();
  }

  std::vector<JinjaToken> run() {
    while (at_ < in_.size()) text_and_tag();
    add(JinjaToken::Kind::End, "");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Data, "chat_template", str_cat(where_, ", line ", line_, ": ", what));
  }

  void add(JinjaToken::Kind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }

  void advance(size_t to) {
    line_ += std::count(in_.begin() + static_cast<std::ptrdiff_t>(at_), in_.begin() + static_cast<std::ptrdiff_t>(to), '\n');
    at_ = to;
  }

  size_t next_tag() const {
    size_t at = at_;
    do {
      at = in_.find('{', at);
      if (at == std::string::npos || at + 1 == in_.size()) return std::string::npos;
      const char c = in_[at + 1];
      if (c == '{' || c == '%' || c == '#') return at;
      ++at;
    } while (true);
  }

  void text_and_tag() {
    const auto tag = next_tag();
    auto text = in_.substr(at_, tag == std::string::npos ? tag : tag - at_);
    if (tag == std::string::npos) {
      add(JinjaToken::Kind::Text, std::move(text));
      return advance(in_.size());
    }
    const char kind = in_[tag + 1], sign = tag + 2 < in_.size() ? in_[tag + 2] : ' ';
    if (sign == '-') {
      while (!text.empty() && is_blank_byte(text.back())) text.pop_back();
    } else if (kind != '{' && sign != '+') {
      strip_line(text);
    }
    if (!text.empty()) add(JinjaToken::Kind::Text, std::move(text));
    advance(tag + (sign == '-' || sign == '+' ? 3 : 2));
    kind == '#' ? comment() : kind == '%' ? inside("%}", true) : inside("}}", false);
  }

  // Removes the blanks between the beginning of a line and a block.
  void strip_line(std::string& text) const {
    const auto last = text.find_last_not_of(" \t");
    if (last == std::string::npos ? begins_line() : text[last] == '\n') text.resize(last == std::string::npos ? 0 : last + 1);
  }

  bool begins_line() const { return at_ == 0 || in_[at_ - 1] == '\n'; }

  void comment() {
    const auto end = in_.find("#}", at_);
    if (end == std::string::npos) fail("a comment is not closed");
    const bool strip = end > at_ && in_[end - 1] == '-';
    advance(end + 2);
    behind_tag(strip, true);
  }

  void behind_tag(bool strip, bool block) {
    size_t to = at_;
    if (strip) {
      while (to < in_.size() && is_blank_byte(in_[to])) ++to;
    } else if (block && to < in_.size() && in_[to] == '\n') {
      ++to;
    }
    advance(to);
  }

  void inside(std::string_view end, bool block) {
    add(block ? JinjaToken::Kind::BlockBegin : JinjaToken::Kind::OutputBegin, "");
    int depth = 0;  // number of open braces, inside of which "}}" does not end the tag
    for (;;) {
      size_t next = at_;
      while (next < in_.size() && is_blank_byte(in_[next])) ++next;
      advance(next);
      if (at_ == in_.size()) fail("a tag is not closed");
      const bool strip = in_[at_] == '-' && std::string_view(in_).substr(at_ + 1).starts_with(end);
      if (strip || (depth == 0 && std::string_view(in_).substr(at_).starts_with(end))) {
        advance(at_ + (strip ? 3 : 2));
        add(block ? JinjaToken::Kind::BlockEnd : JinjaToken::Kind::OutputEnd, "");
        return behind_tag(strip, block);
      }
      if (in_[at_] == '{') ++depth;
      if (in_[at_] == '}') --depth;
      token();
    }
  }

  void token() {
    const char c = in_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      size_t end = at_;
      while (end < in_.size() && (std::isalnum(static_cast<unsigned char>(in_[end])) || in_[end] == '_')) ++end;
      add(JinjaToken::Kind::Name, in_.substr(at_, end - at_));
      return advance(end);
    }
    for (const char* two : {"==", "!=", "<=", ">=", "//", "**"})
      if (std::string_view(in_).substr(at_).starts_with(two)) {
        add(JinjaToken::Kind::Operator, two);
        return advance(at_ + 2);
      }
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(c) == std::string_view::npos) fail(str_cat("'", c, "' is not expected"));
    add(JinjaToken::Kind::Operator, std::string(1, c));
    advance(at_ + 1);
  }

  void number() {
    size_t end = at_;
    while (end < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == '.')) ++end;
    const auto text = in_.substr(at_, end - at_);
    if (text.size() > 15) fail("the number " + text.substr(0, 20) + " is too long");
    const auto dots = std::count(text.begin(), text.end(), '.');
    if (dots > 1 || text.back() == '.') fail("'" + text + "' is not a number");
    add(dots == 0 ? JinjaToken::Kind::Integer : JinjaToken::Kind::Number, text);
    advance(end);
  }

  void string(char quote) {
    std::string out;
    size_t at = at_ + 1;
    for (; at < in_.size() && in_[at] != quote; ++at) {
      if (in_[at] != '\\') {
        out += in_[at];
        continue;
      }
      if (++at == in_.size()) break;
      constexpr std::string_view kNames = "nrtabfv0\\'\"\n", kBytes = std::string_view("\n\r\t\a\b\f\v\0\\'\"", 11);
      const auto found = kNames.find(in_[at]);
      if (found == std::string_view::npos || in_[at] == '0') fail(str_cat("'\\", in_[at], "' in a text is not supported"));
      if (found < kBytes.size()) out += kBytes[found];  // a backslash before a line end adds nothing
    }
    if (at >= in_.size()) fail("a text is not closed");
    add(JinjaToken::Kind::String, std::move(out));
    advance(at + 1);
  }

  std::string in_;
  const std::string& where_;
  std::vector<JinjaToken> out_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<JinjaToken> jinja_tokens(std::string_view source, const std::string& where) { return JinjaLexer(source, where).run(); }

}  // namespace npu_train::detail
