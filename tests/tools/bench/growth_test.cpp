#include "testing.hpp"

#include <cmath>

#include "npu_train/tools/bench/growth.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns costs of size^exponent plus a fixed cost, each known within `scatter`.
std::vector<GrowthPoint> points_of(double exponent, double scatter = 0.01, double fixed = 0) {
  std::vector<GrowthPoint> out;
  for (const double size : {8.0, 16.0, 32.0, 64.0}) {
    const double cost = fixed + std::pow(size, exponent);
    out.push_back({size, cost, cost * (1 - scatter), cost * (1 + scatter)});
  }
  return out;
}

std::string said(const GrowthSweep& sweep, const std::vector<GrowthPoint>& points) {
  BenchReport report;
  add_growth(sweep, points, report);
  return report.notes.at(0);
}

const GrowthSweep kImage{.section = "scaling image", .cost = "step time", .size = "pixels", .reason = "attention"};

}  // namespace

TEST_CASE("the exponent of a power law comes back, with what the intervals allow around it") {
  for (const double exponent : {-1.0, 0.5, 1.0, 2.0}) {
    const auto g = growth_of(points_of(exponent));
    CHECK(g.exponent == doctest::Approx(exponent));
    CHECK(g.low < exponent);
    CHECK(g.high > exponent);
    CHECK(g.points == 4);
  }
  const auto exact = growth_of({GrowthPoint::exact(1, 3), GrowthPoint::exact(10, 300)});
  CHECK(exact.exponent == doctest::Approx(2));
  CHECK(exact.low == doctest::Approx(exact.high));
  // the interval covers the worst case: one end of the first size, the other end of the last
  const auto two = growth_of({{1, 1, 0.5, 2}, {2, 2, 1, 4}});
  CHECK(two.low == doctest::Approx(-1));
  CHECK(two.high == doctest::Approx(3));
  const auto times = GrowthPoint::of(4, Samples{{3, 1, 2}});
  CHECK(times.cost == 2);
  CHECK(times.low == 1);
  CHECK(times.high == 3);
}

TEST_CASE("worse than linear is reported, with the reason if it is known, and only beyond the scatter") {
  CHECK(has(said(kImage, points_of(1.0)), "step time by pixels grows with the power 1 "));
  CHECK(has(said(kImage, points_of(1.0)), "not worse than linear"));
  CHECK(has(said(kImage, points_of(1.4)), "WORSE THAN LINEAR: attention"));
  CHECK(has(said({.section = "s", .cost = "c", .size = "n"}, points_of(1.4)), "no reason is known"));
  CHECK(has(said(kImage, points_of(1.2, 0.2)), "not worse than linear"));  // within the scatter
  // a fixed cost hides the growth at small sizes; the larger half shows it
  const auto hidden = points_of(2, 0.01, 1000);
  CHECK(growth_of(hidden).exponent < 1);
  CHECK(has(said(kImage, hidden), "WORSE THAN LINEAR"));
}

TEST_CASE("too few times of a size give no verdict") {
  auto points = points_of(1.4);
  points[2].sure = false;
  CHECK(has(said(kImage, points), "too few measurements of each size for a verdict"));
  CHECK_FALSE(GrowthPoint::of(4, Samples{{3, 1, 2}}).sure);
  CHECK(GrowthPoint::of(4, Samples{{3, 1, 2, 3, 1, 2}}).sure);
  CHECK(GrowthPoint::exact(1, 3).sure);
}

TEST_CASE("work that is shared out may not become slower") {
  const GrowthSweep threads{.section = "scaling threads", .cost = "step time", .size = "threads", .shared = true};
  CHECK(has(said(threads, points_of(-0.9)), "-1 would be perfect"));
  CHECK(has(said(threads, points_of(0.3)), "MORE OF THEM MAKE IT SLOWER"));
}

TEST_CASE("the row of a sweep has both exponents; too few sizes give a sentence alone") {
  BenchReport report;
  add_growth(kImage, points_of(1.4), report);
  const auto* row = report.row("scaling image", "growth");
  REQUIRE(row != nullptr);
  CHECK(row->number("exponent") == doctest::Approx(1.4));
  CHECK(row->number("exponent_of_larger_half_low") < 1.4);
  BenchReport few;
  add_growth(kImage, {GrowthPoint::exact(1, 1)}, few);
  CHECK(few.rows.empty());
  CHECK(has(to_html(report), "WORSE THAN LINEAR"));
  CHECK(has(few.notes.at(0), "fewer than two sizes"));
  CHECK(error_of([] { growth_of({GrowthPoint::exact(2, 1), GrowthPoint::exact(2, 3)}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { growth_of({GrowthPoint::exact(1, 1), GrowthPoint::exact(2, 0)}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { growth_of({}); }).kind() == ErrorKind::Usage);
}
