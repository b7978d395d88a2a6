#include "testing.hpp"

#include "npu_train/core/clock.hpp"

using namespace npu_train;

TEST_CASE("the manual clock changes only when it is set; the steady one never goes back") {
  ManualClock manual;
  CHECK(manual.now() == 0);
  CHECK(manual.now() == 0);
  manual.advance(90);
  manual.advance(0.5);
  CHECK(manual.now() == 90.5);

  const auto clock = steady_clock();
  double last = clock->now();
  for (int i = 0; i < 1000; ++i) {
    const double now = clock->now();
    REQUIRE(now >= last);
    last = now;
  }
}
