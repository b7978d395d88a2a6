/// The growth of a cost with the size of the work: the exponent of a power law, from a straight line through the logarithms.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "npu_train/tools/bench/bench_report.hpp"
#include "npu_train/tools/bench/samples.hpp"

namespace npu_train {

/// A cost at one size.
struct GrowthPoint {
  double size = 0;
  double cost = 0;
  double low = 0, high = 0;  ///< the interval of the cost, as Samples::median_interval(); both are `cost` if it is exact
  bool sure = true;          ///< false: too few measurements for an interval, so that no conclusion is drawn from it

  static GrowthPoint of(double size, const Samples& times);
  static GrowthPoint exact(double size, double cost) { return {.size = size, .cost = cost, .low = cost, .high = cost}; }
};

/// cost ~ size^exponent.
struct Growth {
  double exponent = 0;
  double low = 0, high = 0;  ///< the smallest and the largest exponent that the points' intervals allow
  size_t points = 0;
  bool sure = true;  ///< all points are
};

/// The exponent above which a cost counts as worse than linear; below it, fixed costs and caches explain the result.
inline constexpr double kLinearGrowth = 1.15;

/// Least squares over the logarithms. Error(Usage) for fewer than two sizes, a number that is not positive, or an interval that does not
/// contain its cost.
Growth growth_of(const std::vector<GrowthPoint>& points);

/// The names of one sweep, and the facts about it.
struct GrowthSweep {
  std::string section{};  ///< of its rows: "scaling depth"
  std::string cost{};     ///< "step time"
  std::string size{};     ///< "depth"
  std::string reason{};   ///< why it may be worse than linear; "" if unknown
  bool shared = false;    ///< the same work over more workers: -1 is perfect, and above 0 more of them make it slower
};

/// Adds the row "growth" of the sweep's section: exponents of all sizes and of the larger half, where constant costs weigh less; and to the
/// report's notes a sentence with the exponents, always if one of them is worse than linear beyond its interval. With fewer than two
/// points, the sentence states this, and there is no row.
void add_growth(const GrowthSweep& sweep, const std::vector<GrowthPoint>& points, BenchReport& report);

}  // namespace npu_train
