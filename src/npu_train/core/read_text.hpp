/// Parses text files of users and of other systems: numbers, lines and byte order marks.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace npu_train {

/// Parses a decimal number that is the complete text, with a minus sign or without a sign: "12", "-3", "007". nullopt for other text, such
/// as "+12", " 12" and "12a", and for numbers beyond int64.
inline std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// The byte order mark that Windows programs write at the start of a UTF-8 file.

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns the position after a byte order mark, 0 without one.
inline size_t start_of_text(std::string_view text) { return text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; }

/// Calls `see` with each line of a text file, without the line end ("\n" or "\r\n") and without a byte order mark. The lines point into
/// `text`. A line end at the end of the text begins no further line.
template <class See>
void for_each_line(std::string_view text, const See& see) {
  text.remove_prefix(start_of_text(text));
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    see(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace npu_train
