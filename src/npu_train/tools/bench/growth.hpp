/// The growth of a cost with the size of the work: the exponent of a power law, fitted as a straight line to the logarithms.
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
  double low = 0, high = 0;  ///< interval of the cost, see Samples::median_interval(); both equal `cost` if it is exact
  bool sure = true;          ///< false: there are too few measurements for an interval, so no conclusion is drawn from it

  static GrowthPoint of(double size, const Samples& times);
  static GrowthPoint exact(double size, double cost) { return {.size = size, .cost = cost, .low = cost, .high = cost}; }
};

/// A power law: cost ~ size^exponent.
struct Growth {
  double exponent = 0;
  double low = 0, high = 0;  ///< the smallest and the largest exponent that the points' intervals allow
  size_t points = 0;
  bool sure = true;  ///< whether all points are sure
};

/// Exponent above which a cost counts as worse than linear. A smaller excess may come from fixed costs and caches.
inline constexpr double kLinearGrowth = 1.15;

/// Fits a power law by least squares of logarithms. Error(Usage) for fewer than two sizes, a number that is not positive, or an interval
/// that does not contain its cost.
Growth growth_of(const std::vector<GrowthPoint>& points);

/// Names and properties of one sweep.
struct GrowthSweep {
  std::string section{};  ///< section of its rows: "scaling depth"
  std::string cost{};     ///< "step time"
  std::string size{};     ///< "depth"
  std::string reason{};   ///< possible reason for a growth worse than linear; "" if unknown
  bool shared = false;    ///< strong scaling: more workers share the same work. Exponent -1 is perfect; above 0, more workers are slower
};

/// Adds the row "growth" to the sweep's section: exponents over all sizes and over the larger half, where fixed costs matter less. Adds a
/// sentence with the exponents to the report's notes, with a warning if one of them is worse than linear beyond its interval. With fewer
/// than two points, the sentence states this, and there is no row.
void add_growth(const GrowthSweep& sweep, const std::vector<GrowthPoint>& points, BenchReport& report);

}  // namespace npu_train
