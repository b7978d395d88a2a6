// Formats finite numbers with a given number of digits.
#pragma once

#include <string>

namespace npu_train::detail {

/// Returns `value` with at most `decimals` digits after the point, without trailing zeros, and with commas between thousands. Requires
/// |value| < 1e15.
std::string fixed(double value, int decimals);

/// Like fixed(), but without commas, for machines.
std::string fixed_plain(double value, int decimals);

/// Returns `value` with at most `digits` significant digits, without trailing zeros: "1.2e-5".
std::string scientific(double value, int digits);

}  // namespace npu_train::detail
