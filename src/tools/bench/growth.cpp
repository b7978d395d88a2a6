#include "npu_train/tools/bench/growth.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

std::string range(const Growth& g) { return " (" + short_number(g.low, 3) + " to " + short_number(g.high, 3) + ")"; }

std::string verdict(const GrowthSweep& sweep, const Growth& all, const Growth& large) {
  if (!all.sure) return "too few measurements of each size for a verdict";
  const double least = std::max(all.low, large.low);
  if (sweep.shared) return least > 0 ? "MORE OF THEM MAKE IT SLOWER" : "-1 would be perfect";
  if (least <= kLinearGrowth) return "not worse than linear beyond the scatter";
  return "WORSE THAN LINEAR: " + (sweep.reason.empty() ? "no reason is known; profile the largest size" : sweep.reason);
}

}  // namespace

GrowthPoint GrowthPoint::of(double size, const Samples& times) {
  const auto [low, high] = times.median_interval();
  const bool sure = static_cast<int64_t>(times.size()) >= kLeastForVerdict;
  return {.size = size, .cost = times.median(), .low = low, .high = high, .sure = sure};
}

Growth growth_of(const std::vector<GrowthPoint>& points) {
  double mean = 0;
  for (const auto& p : points) {
    check(p.size > 0 && p.low > 0 && std::isfinite(p.size + p.high) && p.low <= p.cost && p.cost <= p.high, ErrorKind::Usage, "bench",
          "the cost is ", p.cost, " (", p.low, " to ", p.high, ") at size ", p.size, "; sizes and costs must be positive numbers");
    mean += std::log(p.size) / static_cast<double>(points.size());
  }
  double spread = 0;
  for (const auto& p : points) spread += (std::log(p.size) - mean) * (std::log(p.size) - mean);
  check(spread > 0, ErrorKind::Usage, "bench", "growth needs at least two sizes");
  Growth out{.points = points.size()};
  for (const auto& p : points) {
    out.sure = out.sure && p.sure;
    const double weight = (std::log(p.size) - mean) / spread;
    out.exponent += weight * std::log(p.cost);
    out.low += weight * std::log(weight > 0 ? p.low : p.high);
    out.high += weight * std::log(weight > 0 ? p.high : p.low);
  }
  return out;
}

void add_growth(const GrowthSweep& sweep, const std::vector<GrowthPoint>& points, BenchReport& report) {
  const auto what = sweep.cost + " by " + sweep.size;
  if (points.size() < 2) {
    report.notes.push_back("scaling: " + what + " was measured at fewer than two sizes, so its growth is unknown");
    return;
  }
  auto sorted = points;
  std::sort(sorted.begin(), sorted.end(), [](const GrowthPoint& a, const GrowthPoint& b) { return a.size < b.size; });
  const auto all = growth_of(sorted);
  const auto half = static_cast<std::ptrdiff_t>(std::max<size_t>(2, (sorted.size() + 1) / 2));
  const auto large = growth_of({sorted.end() - half, sorted.end()});
  report.rows.push_back({.section = sweep.section,
                         .name = "growth",
                         .numbers = {{"exponent", all.exponent},
                                     {"exponent_low", all.low},
                                     {"exponent_high", all.high},
                                     {"exponent_of_larger_half", large.exponent},
                                     {"exponent_of_larger_half_low", large.low},
                                     {"exponent_of_larger_half_high", large.high}}});
  std::string text = "scaling: " + what + " grows with the power " + short_number(all.exponent, 3) + range(all);
  if (large.points < all.points) text += ", for the larger sizes " + short_number(large.exponent, 3) + range(large);
  report.notes.push_back(text + ": " + verdict(sweep, all, large));
}

}  // namespace npu_train
