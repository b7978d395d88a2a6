/// How a cost grows with the size of the work: the exponent of a power law, by a straight line through the logarithms.
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
  double low = 0, high = 0;  ///< between which the cost lies: as Samples::median_interval(); both `cost` where it is exact
  bool sure = true;          ///< false: of too few times for an interval, so that nothing is concluded from it

  static GrowthPoint of(double size, const Samples& times);
  static GrowthPoint exact(double size, double cost) { return {.size = size, .cost = cost, .low = cost, .high = cost}; }
};

/// cost ~ size^exponent.
struct Growth {
  double exponent = 0;
  double low = 0, high = 0;  ///< the least and the largest exponent that the points' intervals allow
  size_t points = 0;
  bool sure = true;  ///< all points are
};

/// The exponent above which a cost counts as worse than linear; below it fixed costs and caches explain what is seen.
inline constexpr double kLinearGrowth = 1.15;

/// Least squares over the logarithms. Error(Usage) for fewer than two sizes, a number that is not positive, or an interval that does not
/// hold its cost.
Growth growth_of(const std::vector<GrowthPoint>& points);

/// What one sweep is called, and what may be said of it.
struct GrowthSweep {
  std::string section{};  ///< of its rows: "scaling depth"
  std::string cost{};     ///< "step time"
  std::string size{};     ///< "depth"
  std::string reason{};   ///< why it may be worse than linear; "" where none is known
  bool shared = false;    ///< the same work over more workers: -1 is perfect, and above 0 more of them make it slower
};

/// The row "growth" of the sweep's section: exponents of all sizes and of the larger half, where what is constant weighs less; and among
/// the report's notes a sentence that tells them, in any case when one of both is worse than linear beyond its interval. Of fewer than two
/// points the sentence says so, and there is no row.
void add_growth(const GrowthSweep& sweep, const std::vector<GrowthPoint>& points, BenchReport& report);

}  // namespace npu_train
