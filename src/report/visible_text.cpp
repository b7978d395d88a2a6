#include "npu_train/report/visible_text.hpp"

namespace npu_train::detail {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : visible_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += continues(c) ? 0 : 1;
  return count;
}

size_t byte_of_point(std::string_view text, size_t points) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (!continues(text[at]) && points-- == 0) break;
  return at;
}

std::string shorten_middle(const std::string& text, size_t longest) {
  const auto count = code_points(text);
  if (count <= longest) return text;
  const auto byte_of = [&](size_t point) { return byte_of_point(text, point); };
  const size_t kept = longest - 3;
  return text.substr(0, byte_of(kept - kept / 2)) + "..." + text.substr(byte_of(count - kept / 2));
}

}  // namespace npu_train::detail
