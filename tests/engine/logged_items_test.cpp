#include "testing.hpp"

#include "engine/logged_items.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <numeric>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a histogram counts each value between the limits around it") {
  const auto values = at::randn({4096}).mul(3).to(at::kDouble);
  const auto h = npu_train::detail::logged_histogram(values);
  CHECK(h.count == 4096);
  CHECK(std::accumulate(h.counts.begin(), h.counts.end(), 0.0) == 4096);
  REQUIRE(h.limits.size() == h.counts.size());
  CHECK(std::is_sorted(h.limits.begin(), h.limits.end()));
  CHECK(h.min == values.min().item<double>());
  CHECK(h.max == values.max().item<double>());
  CHECK(h.counts.back() > 0);
  CHECK(h.limits.back() > h.max);
  CHECK((h.limits.back() < 1.11 * h.max && h.limits.front() >= 1.11 * 1.11 * h.min));
  CHECK(h.sum == doctest::Approx(values.sum().item<double>()));
  CHECK(h.sum_of_squares == doctest::Approx(values.square().sum().item<double>()));
  for (size_t i = 1; i < h.limits.size(); ++i) {
    CAPTURE(i);
    CHECK(h.counts[i] == values.ge(h.limits[i - 1]).logical_and(values.lt(h.limits[i])).sum().item<double>());
  }
}

TEST_CASE("values that are not finite are counted apart") {
  const auto h = npu_train::detail::logged_histogram(at::full({7}, kNaN));
  CHECK((h.not_finite == 7 && h.count == 0 && h.counts.empty() && h.min == 0 && h.max == 0));
  const auto same = npu_train::detail::logged_histogram(at::full({5}, -2.0));
  CHECK((same.count == 5 && same.not_finite == 0 && same.min == -2 && same.max == -2));
  CHECK(std::accumulate(same.counts.begin(), same.counts.end(), 0.0) == 5);
}
