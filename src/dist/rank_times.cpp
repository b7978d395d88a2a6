#include "dist/rank_times.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {

std::string RankTimes::add(const std::vector<double>& seconds) {
  sums_.resize(seconds.size());
  for (size_t r = 0; r < seconds.size(); ++r) sums_[r] += seconds[r];
  if (++steps_ < kSteps) return "";
  auto sorted = sums_;
  std::sort(sorted.begin(), sorted.end());
  const double median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2, slowest = sorted.back();
  const auto rank = std::find(sums_.begin(), sums_.end(), slowest) - sums_.begin();
  sums_.assign(sums_.size(), 0);
  steps_ = 0;
  if (!(slowest > kRatio * median)) return "";
  return printed(
      "rank %d is the slowest: over the last %d steps it computed for %.0f ms a step, %.2f times the median of all ranks (%.0f ms); "
      "the others wait for it",
      static_cast<int>(rank), static_cast<int>(kSteps), 1e3 * slowest / kSteps, slowest / median, 1e3 * median / kSteps);
}

}  // namespace npu_train::detail
