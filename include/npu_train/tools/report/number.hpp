/// Numbers for people: few digits, no noise.
#pragma once

#include <string>

namespace npu_train {

/// Returns `value` with at most `digits` significant digits: "0.1235", "12.3", "1.2e-5". Integers below 1e15 keep all their digits:
/// "1,234,567". Up to a million, all digits before the decimal point are kept: "123,457", not "1.235e5". Also "nan", "inf" and "-inf".
std::string short_number(double value, int digits = 4);

/// Returns a share as "12.3 %".
inline std::string percentage(double share, int digits = 3) { return short_number(100 * share, digits) + " %"; }

}  // namespace npu_train
