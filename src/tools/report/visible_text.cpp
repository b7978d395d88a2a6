#include "npu_train/tools/report/visible_text.hpp"

namespace npu_train::detail {
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

std::string shorten_middle(const std::string& text, size_t longest) {
  const auto count = code_points(text);
  if (count <= longest) return text;
  const auto byte_of = [&](size_t point) { return byte_of_point(text, point); };
  const size_t kept = longest - 3;
  return text.substr(0, byte_of(kept - kept / 2)) + "..." + text.substr(byte_of(count - kept / 2));
}

}  // namespace npu_train::detail
