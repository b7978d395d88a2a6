// Finite numbers with a given number of digits.
#pragma once

#include <string>

namespace npu_train::detail {

/// At most `decimals` digits behind the point, without zeros at the end; commas between thousands. |value| < 1e15.
std::string fixed(double value, int decimals);

/// As fixed(), without commas: for machines.
std::string fixed_plain(double value, int decimals);

/// At most `digits` significant digits, without zeros at the end: "1.2e-5".
std::string scientific(double value, int digits);

}  // namespace npu_train::detail
