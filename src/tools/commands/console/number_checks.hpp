// Limits of numbers on a command line, in words, since CLI11's own checks print the range of a double with 300 digits.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

#include "npu_train/core/text.hpp"

namespace npu_train::cli {

namespace detail {

inline CLI::Validator number_check(bool zero_too, const std::string& allowed, const std::string& name) {
  const auto why = [=](const std::string& text) {
    const auto value = decimal_number(text);
    return value && std::isfinite(*value) && (*value > 0 || (zero_too && *value == 0)) ? std::string()
                                                                                       : text + " is not allowed; allowed: " + allowed;
  };
  return {why, name};
}

}  // namespace detail

inline CLI::Validator zero_or_more() { return detail::number_check(true, "a number of 0 or more", "NONNEGATIVE"); }
inline CLI::Validator above_zero() { return detail::number_check(false, "a number above 0", "POSITIVE"); }

}  // namespace npu_train::cli
