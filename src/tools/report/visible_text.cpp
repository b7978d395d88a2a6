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

}  // namespace npu_train::detail
