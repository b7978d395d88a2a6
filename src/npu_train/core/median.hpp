/// The median of numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace npu_train {

/// Returns the middle value (the upper one of the two for an even count); 0 without values. NaN is not allowed.
inline double upper_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace npu_train
