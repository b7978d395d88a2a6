/// Texts without the blanks around them; also shortens the output of a program or of libtorch for a message.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// Returns the text without surrounding blanks and line ends.
inline std::string_view trimmed_view(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// Returns the first line that is not blank, without surrounding blanks.
inline std::string first_line(std::string_view text) {
  text = trimmed_view(text);
  return std::string(trimmed_view(text.substr(0, text.find('\n'))));
}

}  // namespace npu_train::detail
