/// Exact sums of fp64 numbers: their bits do not depend on the order or grouping of the additions, and so not on the number of threads or
/// ranks.
///
/// A sum is one long fixed-point integer in 32-bit digits. Each digit is an int64, so that carries can be deferred (the small
/// superaccumulator of Neal, "Fast Exact Summation Using Small and Large Superaccumulators", 2015). The digits cover the squares of all
/// fp64 numbers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace npu_train {

class ExactSum {
 public:
  /// Digit k counts multiples of 2^(32 k + kLowestExponent).
  static constexpr int kDigits = 138, kLowestExponent = -2208;
  /// Counters of added +inf, -inf and NaN, stored after the digits.
  static constexpr int kPlusInf = kDigits, kMinusInf = kDigits + 1, kNaN = kDigits + 2, kLimbs = kDigits + 3;
  using Limbs = std::array<int64_t, kLimbs>;

  ExactSum() = default;
  /// Constructs the total from the elementwise sum of up to 2^30 limbs() arrays.
  explicit ExactSum(const Limbs& limbs) : limbs_(limbs) { carry(); }

  /// Adds value * 2^exponent. `exponent` must be in [-1134, 1100], or in [-2148, 2048] if |value| is in [1, 2^64). Error(Usage) if the
  /// product is out of range.
  void add(double value, int exponent = 0) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52) & 0x7ff;
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    if (biased == 0x7ff) return add_special(value);
    const uint64_t mantissa = biased == 0 ? fraction : fraction | uint64_t{1} << 52;  // in units of 2^(max(biased, 1) - 1075)
    const int place = (biased == 0 ? 1 : biased) - 1075 + exponent - kLowestExponent;
    if (place < 0 || place >= 32 * (kDigits - 2)) return add_far(value, exponent);
    if (++pending_ == kMostPending) carry();
    const int shift = place & 31;
    const uint64_t low = (mantissa & kMask) << shift, high = (mantissa >> 32) << shift;
    const int64_t sign = value < 0 ? -1 : 1;
    int64_t* const digit = limbs_.data() + (place >> 5);
    digit[0] += sign * static_cast<int64_t>(low & kMask);
    digit[1] += sign * static_cast<int64_t>((low >> 32) + (high & kMask));
    digit[2] += sign * static_cast<int64_t>(high >> 32);
  }
  /// Adds all values. If their exponents are within 32 of each other, this is several times as fast as adding them one by one.
  void add(std::span<const double> values);
  void add(const ExactSum& other);

  /// Returns the sum, rounded once (to nearest, ties to even). Overflow gives inf. Added infinities and NaNs have their IEEE result: inf -
  /// inf is NaN.
  double value() const;
  /// Rounds the sum to 53 bits and returns the square root of the result, even if value() would overflow or be subnormal. NaN for a
  /// negative sum.
  double root() const;

  /// Returns the canonical form: digits from 0 to 2^32 - 1, except for the last digit, which has the sign; then the counters.
  Limbs limbs() const;

 private:
  static constexpr uint64_t kMask = 0xffffffff;
  static constexpr int kMostPending = 1 << 29;
  struct Rounded;

  void add_chunk(std::span<const double> values);
  void add_special(double value);
  [[noreturn]] static void add_far(double value, int exponent);
  void carry();
  double special() const;
  Rounded rounded(int lowest_exponent) const;

  Limbs limbs_{};
  int pending_ = 0;  // additions since the last carry
};

}  // namespace npu_train
