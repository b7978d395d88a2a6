/// Sums of fp64 numbers without rounding, so that their bits depend neither on order nor on grouping, such as that of threads and ranks.
///
/// A sum is one long fixed-point integer in digits of 32 bits, each in an int64 so that carries can wait (the small superaccumulator of
/// Neal, "Fast Exact Summation Using Small and Large Superaccumulators", 2015). It covers the squares of all fp64 numbers.
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
  /// How often +inf, -inf and NaN were added: after the digits.
  static constexpr int kPlusInf = kDigits, kMinusInf = kDigits + 1, kNaN = kDigits + 2, kLimbs = kDigits + 3;
  using Limbs = std::array<int64_t, kLimbs>;

  ExactSum() = default;
  /// Of limbs() of several sums, added elementwise: the sum of these sums. Up to 2^30 of them.
  explicit ExactSum(const Limbs& limbs) : limbs_(limbs) { carry(); }

  /// Adds value * 2^exponent. Error(Usage) unless -1134 <= exponent <= 1100, or -2148 <= exponent <= 2048 for a value of magnitude in
  /// [1, 2^64).
  void add(double value, int exponent = 0) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52) & 0x7ff;
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    if (biased == 0x7ff) return add_special(value);
    const uint64_t mantissa = biased == 0 ? fraction : fraction | uint64_t{1} << 52;  // times 2^(max(biased, 1) - 1075)
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
  /// Adds all values: the same, and several times as fast where their exponents are within 32 of each other.
  void add(std::span<const double> values);
  void add(const ExactSum& other);

  /// Rounded once, to the nearest, ties to even. Beyond fp64: inf. inf or NaN where such a value was added, NaN for inf - inf.
  double value() const;
  /// The square root of the sum, rounded to 53 bits before it; where value() is beyond fp64 or subnormal, too. NaN for a negative sum.
  double root() const;

  /// The sum in its only form: digits from 0 to 2^32 - 1, the sign in the last one; then the counts.
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
