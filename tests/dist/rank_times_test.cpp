#include "dist/rank_times.hpp"

#include "testing.hpp"

using npu_train::detail::RankTimes;
using namespace npu_train::testing;

namespace {

std::vector<std::string> reports(const std::vector<double>& seconds, int64_t steps) {
  RankTimes times;
  std::vector<std::string> out;
  for (int64_t step = 1; step <= steps; ++step)
    if (const auto text = times.add(seconds); !text.empty()) out.push_back(std::to_string(step) + ": " + text);
  return out;
}

}  // namespace

TEST_CASE("the slowest rank is named once in 100 steps, if it takes more than 1.3 times the median") {
  const auto slow = reports({0.1, 0.1, 0.142, 0.1}, 250);
  REQUIRE(slow.size() == 2);
  CHECK(
      slow[0] ==
      "100: rank 2 is the slowest: over the last 100 steps it computed for 142 ms a step, 1.42 times the median of all ranks (100 ms); the "
      "others wait for it");
  CHECK(has(slow[1], "200: rank 2"));
  CHECK(reports({0.1, 0.1, 0.125}, 300).empty());
  CHECK(reports({0.1, 0.1}, 300).empty());
  CHECK(reports({0, 0}, 300).empty());
}
