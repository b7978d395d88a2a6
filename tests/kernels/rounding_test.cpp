#include "testing.hpp"

#include <bit>
#include <cmath>
#include <random>

#include "npu_train/kernels/rounding.hpp"
#include "reference/low_precision.hpp"

using namespace npu_train;
using reference::format_of;
using reference::nearest;

namespace {

template <class T>
bool same(T got, double expected) {
  const float value = static_cast<float>(expected);
  return std::isnan(value) ? std::isnan(widen(got)) : std::bit_cast<uint32_t>(widen(got)) == std::bit_cast<uint32_t>(value);
}

// Returns the wrong roundings among `count` fp32 numbers: random bit patterns and patterns next to ties, of both signs.
template <class T>
int wrong(at::ScalarType dtype, int count) {
  std::mt19937 random(7);
  int out = 0;
  const auto check_one = [&](uint32_t bits) {
    const float x = std::bit_cast<float>(bits);
    out += !same(round_to<T>(x), nearest(static_cast<double>(x), format_of(dtype)));
  };
  for (int i = 0; i < count; ++i) {
    const uint32_t bits = random();
    check_one(bits);
    for (const uint32_t tie : {0x8000U, 0x1000U})
      for (const int beside : {-1, 0, 1}) check_one(((bits & ~(2 * tie - 1)) | tie) + static_cast<uint32_t>(beside));
  }
  return out;
}

}  // namespace

TEST_CASE("every fp16 and bf16 number widens to its value") {
  int wrong_half = 0, wrong_bf16 = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, static_cast<int>(exponent) - 25);
    if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
    if (bits & 0x8000) value = -value;
    wrong_half += !same(c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits()), value);
    const float wide = std::bit_cast<float>(bits << 16);
    wrong_bf16 += !same(c10::BFloat16(static_cast<uint16_t>(bits), c10::BFloat16::from_bits()), static_cast<double>(wide));
  }
  CHECK(wrong_half == 0);
  CHECK(wrong_bf16 == 0);
}

TEST_CASE("rounding is to the nearest, ties to even, with subnormals, infinities and NaN") {
  CHECK(wrong<c10::Half>(at::kHalf, 200000) == 0);
  CHECK(wrong<c10::BFloat16>(at::kBFloat16, 200000) == 0);
}

TEST_CASE("values beyond the largest number are infinite from half a spacing on") {
  CHECK(widen(round_to<c10::Half>(65519.996F)) == 65504.0F);
  CHECK(std::isinf(widen(round_to<c10::Half>(65520.0F))));
  CHECK(widen(round_to<c10::Half>(-65520.0F)) == -INFINITY);
  CHECK(widen(round_to<c10::Half>(0x1p-25F)) == 0.0F);        // a tie goes to zero, which is even
  CHECK(widen(round_to<c10::Half>(0x1.8p-24F)) == 0x1p-23F);  // this tie goes up
  CHECK(std::isinf(widen(round_to<c10::BFloat16>(std::numeric_limits<float>::max()))));
}
