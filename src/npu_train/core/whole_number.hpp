/// Parses whole numbers.
#pragma once

#include <charconv>
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

}  // namespace npu_train
