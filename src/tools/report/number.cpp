#include "npu_train/tools/report/number.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "tools/report/digits.hpp"

namespace npu_train {

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return shortest(value);
  const double size = std::abs(value);
  if (size < 1e15 && value == std::trunc(value)) return with_commas(static_cast<int64_t>(value));
  if (size < 1e-3 || size >= 1e6) return detail::scientific(value, digits);
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return detail::fixed(value, std::max(0, digits - before));
}

}  // namespace npu_train
