#include "npu_train/dist/reduction_times.hpp"

#include "testing.hpp"

#include <cmath>

using namespace npu_train;

TEST_CASE("spans that overlap count once, and what ends after the backward pass is not hidden") {
  ReductionTimes times{.backward = 10, .end = 16};
  CHECK(times.communication() == 0);
  CHECK(std::isnan(times.hidden()));
  times.buckets.push_back({.bytes = 100, .exchange = {2, 5}, .gather = {5, 6}});
  times.buckets.push_back({.bytes = 50, .exchange = {4, 8}, .gather = {9, 12}});
  times.buckets.push_back({.bytes = 7, .exchange = {11, 13}});  // from a native sum
  CHECK(times.bytes() == 157);
  CHECK(times.communication() == 6 + 4);            // 2 to 8 and 9 to 13
  CHECK(times.communication(times.backward) == 7);  // 2 to 8 and 9 to 10
  CHECK(times.hidden() == doctest::Approx(0.7));

  times.buckets.push_back({.bytes = 30, .between_bytes = 20, .exchange = {13, 14}, .between = {14, 15}, .gather = {20, 21}});
  times.buckets.push_back({.bytes = 5, .between_bytes = 5, .between = {14.5, 16}});
  CHECK(times.bytes() == 192);
  CHECK(times.between_bytes() == 25);
  CHECK(times.communication() == 6 + 7 + 1);  // 2 to 8, 9 to 16 and 20 to 21
}
