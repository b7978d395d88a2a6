#include "testing.hpp"

#include "npu_train/tools/bench/samples.hpp"

#include <random>

using namespace npu_train;
using namespace npu_train::testing;
using RatioVerdict = SpeedRatio::Verdict;

namespace {

/// Times of a machine whose speed drifts by up to a third, while single runs scatter by a few percent.
struct DriftingMachine {
  std::mt19937_64 random;
  double speed = 1;
  explicit DriftingMachine(uint64_t seed) : random(seed) {}
  double run(double work) {
    std::normal_distribution<double> step(0, 0.03), noise(0, 0.04);
    speed = std::clamp(speed + step(random), 0.8, 1.2);
    return work * speed * (1 + std::abs(noise(random)));
  }
  PairedSamples pairs(double one, double other, int n) {
    PairedSamples out;
    for (int i = 0; i < n; ++i) {
      if (i % 2 == 0) out.one.seconds.push_back(run(one));
      out.other.seconds.push_back(run(other));
      if (i % 2 == 1) out.one.seconds.push_back(run(one));
    }
    return out;
  }
};

}  // namespace

TEST_CASE("percentiles are values that were measured") {
  const Samples s{{5, 1, 4, 2, 3}};
  CHECK(s.min() == 1);
  CHECK(s.median() == 3);
  CHECK(s.percentile(99) == 5);
  CHECK(s.percentile(20) == 1);
  CHECK(s.percentile(21) == 2);
  CHECK(s.scatter() == doctest::Approx((4 - 2) / 2.0 / 3));
  CHECK(std::isnan(Samples{}.median()));
}

TEST_CASE("the interval of a median holds it, and narrows with the number of times") {
  Samples few{{1, 2, 3}}, many;
  for (int i = 0; i < 400; ++i) many.seconds.push_back(1 + 0.01 * i);
  CHECK((few.median_interval() == std::pair{1.0, 3.0}));
  const auto [low, high] = many.median_interval();
  CHECK(low == doctest::Approx(1 + 0.01 * 180).epsilon(0.01));  // ranks 200 -+ 19.6
  CHECK(high == doctest::Approx(1 + 0.01 * 219).epsilon(0.01));
}

TEST_CASE("the interval is that of the sign test") {
  Samples one, other;
  for (int i = 1; i <= 10; ++i) one.seconds.push_back(1), other.seconds.push_back(1 + 0.01 * i);
  const auto r = speed_ratio(one, other);
  CHECK(r.low == doctest::Approx(1.02));  // of ten coins at most one is heads in 1.07 % of the cases, at most two in 5.5 %
  CHECK(r.high == doctest::Approx(1.09));
  CHECK((r.verdict == RatioVerdict::Faster));
  CHECK((speed_ratio(other, one).verdict == RatioVerdict::Slower));
  CHECK(speed_ratio(other, one).value == doctest::Approx(1 / 1.01));
}

TEST_CASE("five pairs give no verdict, and invalid numbers are refused") {
  CHECK((speed_ratio({{1, 1, 1, 1, 1}}, {{2, 2, 2, 2, 2}}).verdict == RatioVerdict::TooFewPairs));
  CHECK(has(speed_ratio({{1}}, {{2}}).str(), "too few"));
  CHECK((speed_ratio({{1, 1, 1, 1, 1, 1}}, {{2, 2, 2, 2, 2, 2}}).verdict == RatioVerdict::Faster));
  CHECK(error_of([] { speed_ratio({{1}}, {{1, 2}}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { speed_ratio({{0}}, {{1}}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { speed_ratio({}, {}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("two equal programs get no verdict, and a tenth is seen, on a machine that drifts") {
  int equal = 0, seen = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    equal += DriftingMachine(seed).pairs(1, 1, 12).ratio().verdict == RatioVerdict::NoDifference;
    seen += DriftingMachine(seed).pairs(1, 1.1, 12).ratio().verdict == RatioVerdict::Faster;
  }
  CHECK(equal >= 190);
  CHECK(seen >= 180);
}

TEST_CASE("interleaved measurements call both sides alternately") {
  std::string calls;
  const auto pairs = measure_alternately([&] { calls += 'a'; }, [&] { calls += 'b'; }, 4, 1);
  CHECK(calls == "ababbaabba");
  CHECK(pairs.one.size() == 4);
  CHECK(pairs.other.size() == 4);
  calls.clear();
  CHECK(measure([&] { calls += 'c'; }, 3, 2).size() == 3);
  CHECK(calls == "ccccc");
}
