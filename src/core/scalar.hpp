/// Parses the text of configuration scalars as numbers. Integers are decimal only: 010 is ten.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

inline std::optional<int64_t> parse_integer(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return whole_number(text);
}

/// Parses a finite decimal number, or inf, .inf, nan or .nan in any letter case. All of them may have a sign.
inline std::optional<double> parse_number(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.empty() || text[0] == '+' || text[0] == '-') return std::nullopt;
  const auto word = to_lower(text.size() <= 4 ? text : std::string_view());
  double value = 0;
  if (word == "inf" || word == ".inf") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan" || word == ".nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (!((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return std::nullopt;  // from_chars would accept "infinity" and "nan(x)"
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  }
  return negative ? -value : value;
}

/// Returns whether YAML reads the unquoted text as null.
inline bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

/// Returns whether the unquoted text would be read as a number, as a boolean (including those of YAML 1.1, which other readers know) or as
/// null.
inline bool is_special_word(std::string_view text) {
  if (is_null_word(text) || parse_number(text)) return true;
  const auto word = to_lower(text.size() <= 5 ? text : std::string_view());
  for (const auto* special : {"true", "false", "yes", "no", "on", "off"}) {
    if (word == special) return true;
  }
  return false;
}

}  // namespace npu_train::detail
