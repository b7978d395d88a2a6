/// What people and programs of other systems write into text files.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace npu_train {

// Parses whole numbers.

/// Parses a decimal number that is the complete text, with a minus sign or without a sign: "12", "-3", "007". nullopt for other text, such
/// as "+12", " 12" and "12a", and for numbers beyond int64.
inline std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// The byte order mark that programs of Windows write at the start of a UTF-8 file.

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns the position after a byte order mark, 0 without one.
inline size_t start_of_text(std::string_view text) { return text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; }

}  // namespace npu_train
