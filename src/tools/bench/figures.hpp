// Figures that may be unknown: NaN.
#pragma once

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

namespace npu_train::detail {

// Returns NaN for text that is not a number.
inline double number_or_nan(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : std::nan("");
}

}  // namespace npu_train::detail
