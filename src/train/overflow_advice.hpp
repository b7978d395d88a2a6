// Advice after an overflow, derived from the findings of its report.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/overflow_report.hpp"

namespace npu_train::detail {

std::vector<std::string> overflow_advice(const OverflowReport& report);

}  // namespace npu_train::detail
