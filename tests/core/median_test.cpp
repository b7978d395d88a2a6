#include "testing.hpp"

#include "npu_train/core/median.hpp"

using npu_train::upper_median;

TEST_CASE("the middle one, of two the upper, of none 0") {
  CHECK(upper_median({3, 1, 2}) == 2);
  CHECK(upper_median({4, 1, 3, 2}) == 3);
  CHECK(upper_median({7}) == 7);
  CHECK(upper_median({}) == 0);
}
