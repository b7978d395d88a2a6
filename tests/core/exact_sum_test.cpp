#include "testing.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "npu_train/core/exact_sum.hpp"
#include "npu_train/core/seed.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr double kLargest = std::numeric_limits<double>::max(), kSmallest = std::numeric_limits<double>::denorm_min();

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double v : values) sum.add(v);
  return sum;
}

/// Computes the correctly rounded sum with another algorithm, that of Python's math.fsum: it keeps numbers that do not overlap and have the
/// same sum (Shewchuk 1997).
double reference(const std::vector<double>& values) {
  std::vector<double> parts;
  for (double x : values) {
    size_t kept = 0;
    for (double y : parts) {
      if (std::abs(x) < std::abs(y)) std::swap(x, y);
      const double high = x + y, low = y - (high - x);
      if (low != 0) parts[kept++] = low;
      x = high;
    }
    parts.resize(kept);
    parts.push_back(x);
  }
  double high = 0, low = 0;
  while (!parts.empty() && low == 0) {
    const double x = high, y = parts.back();
    parts.pop_back();
    high = x + y;
    low = y - (high - x);
  }
  if (!parts.empty() && (low < 0) == (parts.back() < 0)) {  // the rest below `low` has its sign: rounds up if `low` is half a unit
    const double twice = low * 2, rounded = high + twice;
    if (twice == rounded - high) high = rounded;
  }
  return high;
}

/// Returns numbers of both signs between 2^-span and 2^span.
std::vector<double> numbers(size_t n, uint64_t seed, int span) {
  Philox draw(seed);
  std::vector<double> out(n);
  for (auto& x : out) {
    const auto mantissa = static_cast<double>((uint64_t{draw()} << 21) ^ draw());
    x = std::ldexp(mantissa, static_cast<int>(draw.below(static_cast<uint32_t>(2 * span))) - span - 52) * (draw.below(2) == 0 ? 1 : -1);
  }
  return out;
}

}  // namespace

TEST_CASE("sums are rounded once") {
  CHECK(ExactSum().value() == 0);
  CHECK(sum_of({1e308, 1.0, -1e308}).value() == 1.0);
  CHECK(sum_of({0x1p53, 1.0}).value() == 0x1p53);      // a tie goes to the even neighbour
  CHECK(sum_of({0x1p53, 3.0}).value() == 0x1p53 + 4);  // this tie goes up
  CHECK(sum_of({0x1p53, 1.0, 1e-300}).value() == 0x1p53 + 2);
  CHECK(sum_of({-0x1p53, -1.0, -1e-300}).value() == -0x1p53 - 2);
  CHECK(sum_of({0x1p53, 1.0, -1e-300}).value() == 0x1p53);
  CHECK(sum_of({kLargest, 0x1p970}).value() == kInf);  // half a unit in the last place is rounded up
  CHECK(sum_of({kLargest, 0x1p969}).value() == kLargest);
  CHECK(sum_of({kLargest, kLargest, -kLargest}).value() == kLargest);
  for (const int span : {3, 40, 900})
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const auto values = numbers(1 + seed, seed, span);
      CAPTURE(span);
      CAPTURE(seed);
      CHECK(sum_of(values).value() == reference(values));
    }
}

TEST_CASE("subnormal numbers, and sums that become subnormal") {
  CHECK(sum_of({kSmallest, kSmallest, kSmallest}).value() == 3 * kSmallest);
  CHECK(sum_of({kSmallest, -kSmallest}).value() == 0);
  CHECK(sum_of({0x1p-1022, -kSmallest}).value() == 0x1p-1022 - kSmallest);
  ExactSum half, more;
  half.add(1, -1075);  // half of the smallest number goes to 0, which is even
  CHECK(half.value() == 0);
  more.add(1, -1075);
  more.add(1, -2000);
  CHECK(more.value() == kSmallest);
  more.add(-1, -1080);
  CHECK(more.value() == 0);
}

TEST_CASE("the order of numbers, and how they are grouped, does not matter") {
  auto values = numbers(3000, 1, 900);
  const auto expected = sum_of(values).limbs();
  Philox draw(2);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), draw);
    std::vector<ExactSum> groups(1 + draw.below(40));
    for (const double v : values) groups[draw.below(static_cast<uint32_t>(groups.size()))].add(v);
    ExactSum sum;
    for (const auto& group : groups) sum.add(group);
    CHECK(sum.limbs() == expected);
  }
}

TEST_CASE("many numbers at once give the sum of them one by one") {
  const auto check_span = [](const std::vector<double>& values) {
    ExactSum all;
    all.add(std::span<const double>(values));
    CHECK(all.limbs() == sum_of(values).limbs());
  };
  for (const int span : {2, 16, 40, 900})  // below the limit, at it, and beyond it
    for (uint64_t seed = 0; seed < 20; ++seed)
      for (const size_t n : {255, 256, 1000, 4096}) check_span(numbers(n, seed, span));
  for (const double x : {1e300, kLargest, 1e-260, kSmallest, 0.0, 0.75}) check_span(std::vector<double>(512, x));
  for (const double x : {kInf, -kInf, kNaN, 0x1p-90, 0x1.8p-33, 1e9}) {
    std::vector<double> values(600, 1.25);
    values[300] = x;
    check_span(values);
    values[10] = -0x1.fffffffffffffp0;
    check_span(values);
    std::vector<double> zeros(600);
    zeros[300] = x;
    check_span(zeros);
  }
}

TEST_CASE("limbs add elementwise: the sums of ranks") {
  constexpr size_t kRanks = 5000;
  auto values = numbers(kRanks, 3, 900);
  values[7] = -1e300, values[8] = 1e300;
  ExactSum::Limbs total{};
  for (const double v : values) {
    const auto limbs = sum_of({v, v / 3}).limbs();
    for (int k = 0; k < ExactSum::kDigits - 1; ++k) {
      const auto digit = limbs[static_cast<size_t>(k)];
      REQUIRE((digit >= 0 && digit < int64_t{1} << 32));
    }
    for (size_t i = 0; i < total.size(); ++i) total[i] += limbs[i];
  }
  ExactSum all;
  for (const double v : values) all.add(v), all.add(v / 3);
  CHECK(ExactSum(total).limbs() == all.limbs());
  CHECK(ExactSum(total).value() == all.value());
}

TEST_CASE("ten million numbers, more carries than digits wait for") {
  constexpr int kCount = 10'000'000;
  ExactSum sum;
  Philox draw(4);
  double in_fp64 = 0;
  int64_t units = 0;  // units of 2^-24
  for (int i = 0; i < kCount; ++i) {
    const float x = draw.uniform();
    sum.add(static_cast<double>(x));
    in_fp64 += static_cast<double>(x);
    units += static_cast<int64_t>(x * 0x1p24F);
  }
  CHECK(sum.value() == static_cast<double>(units) * 0x1p-24);
  CHECK(in_fp64 == sum.value());  // fp64 is exact here, because the sum needs only 48 bits
  ExactSum large;
  for (int i = 0; i < kCount; ++i) large.add(kLargest);
  CHECK(large.value() == kInf);
  for (int i = 1; i < kCount; ++i) large.add(-kLargest);
  CHECK(large.value() == kLargest);
}

TEST_CASE("infinity and NaN, in any order") {
  const auto is_nan = [](const std::vector<double>& values) { return std::isnan(sum_of(values).value()); };
  CHECK(sum_of({1.0, kInf, -2.0}).value() == kInf);
  CHECK(sum_of({-kInf, 1.0}).value() == -kInf);
  CHECK(is_nan({kInf, 1.0, -kInf}));
  CHECK(is_nan({kNaN, 1.0}));
  CHECK(is_nan({kInf, kNaN}));
  CHECK(is_nan({kNaN, kInf}));
  ExactSum a, b;
  a.add(kInf), b.add(5);
  b.add(a);
  CHECK(b.value() == kInf);
  CHECK(ExactSum(b.limbs()).value() == kInf);
  CHECK(std::isinf(b.root()));
}

TEST_CASE("the root of sums that fp64 cannot hold") {
  ExactSum squares, small;
  for (int i = 0; i < 4; ++i) squares.add(1.5, 2000), small.add(1.5, -2100);
  CHECK(squares.value() == kInf);
  CHECK(squares.root() == std::ldexp(std::sqrt(6.0), 1000));
  CHECK(small.value() == 0);
  CHECK(small.root() == std::ldexp(std::sqrt(6.0), -1050));
  CHECK(sum_of({2.0}).root() == std::sqrt(2.0));
  CHECK(sum_of({1.0, 1.0, 2.25}).root() == std::sqrt(4.25));
  CHECK(ExactSum().root() == 0);
  CHECK(std::isnan(sum_of({-1.0}).root()));
}

TEST_CASE("an exponent out of range is an Error") {
  ExactSum sum;
  CHECK(error_of([&] { sum.add(1.0, 5000); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { sum.add(1.0, -5000); }).kind() == ErrorKind::Usage);
  CHECK(sum.value() == 0);
}
