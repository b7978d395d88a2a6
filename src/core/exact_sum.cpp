#include "npu_train/core/exact_sum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/core/error.hpp"

namespace npu_train {

// A number sign * mantissa * 2^exponent, with at most 53 bits of mantissa.
struct ExactSum::Rounded {
  double mantissa = 0;  // a signed integer value
  int exponent = 0;
};

void ExactSum::add_special(double value) { ++limbs_[std::isnan(value) ? kNaN : value > 0 ? kPlusInf : kMinusInf]; }

void ExactSum::add_far(double value, int exponent) {
  throw Error(ErrorKind::Usage, "ExactSum", str_cat(value, " times 2 to the ", exponent, " is out of range"));
}

namespace {

// Chunk size: sums of this many 44-bit parts stay exact in fp64.
constexpr size_t kChunk = 256, kLanes = 8;

}  // namespace

void ExactSum::add(std::span<const double> values) {
  for (; values.size() >= kChunk; values = values.subspan(kChunk)) add_chunk(values.first(kChunk));
  for (const double v : values) add(v);
}

// Splits each value into a multiple of 2^-42 times the bound (rounded to nearest) and a remainder that is a multiple of 2^-85 times the
// bound; fp64 sums of both are exact.
void ExactSum::add_chunk(std::span<const double> values) {
  double largest[kLanes] = {}, high[kLanes] = {}, low[kLanes] = {};
  for (size_t i = 0; i < kChunk; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) largest[j] = std::max(largest[j], std::abs(values[i + j]));
  const double bound = *std::max_element(largest, largest + kLanes);
  bool whole = bound > 0x1p-800 && bound < 0x1p900;
  if (whole) {
    // Adding and then subtracting one of these constants rounds a number to a multiple of the constant's last place.
    const double high_round = std::ldexp(1.5, std::ilogb(bound) + 10), low_round = high_round * 0x1p-43;
    bool rest[kLanes] = {};
    for (size_t i = 0; i < kChunk; i += kLanes)
      for (size_t j = 0; j < kLanes; ++j) {
        const double h = values[i + j] + high_round - high_round, l = values[i + j] - h, k = l + low_round - low_round;
        high[j] += h;
        low[j] += k;
        rest[j] |= !(k == l);  // also true for NaN
      }
    whole = std::none_of(rest, rest + kLanes, [](bool r) { return r; });
  }
  if (!whole) {
    for (const double v : values) add(v);
    return;
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) high[j] += high[j + half], low[j] += low[j + half];
  add(high[0]);
  add(low[0]);
}

void ExactSum::add(const ExactSum& other) {
  carry();
  auto more = other;
  more.carry();
  for (size_t i = 0; i < limbs_.size(); ++i) limbs_[i] += more.limbs_[i];
  pending_ = 1;
}

void ExactSum::carry() {
  for (int k = 0; k + 1 < kDigits; ++k) {
    limbs_[k + 1] += limbs_[k] >> 32;
    limbs_[k] &= static_cast<int64_t>(kMask);
  }
  pending_ = 0;
}

double ExactSum::special() const {
  if (limbs_[kNaN] > 0 || (limbs_[kPlusInf] > 0 && limbs_[kMinusInf] > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return limbs_[kPlusInf] > 0 ? infinity : limbs_[kMinusInf] > 0 ? -infinity : 0;
}

// Rounds to the nearest number with 53 bits that is a multiple of 2^lowest_exponent.
ExactSum::Rounded ExactSum::rounded(int lowest_exponent) const {
  auto sum = *this;
  sum.carry();
  const bool negative = sum.limbs_[kDigits - 1] < 0;
  if (negative) {
    for (int k = 0; k < kDigits; ++k) sum.limbs_[k] = -sum.limbs_[k];
    sum.carry();
  }
  int top = kDigits - 1;
  while (top >= 0 && sum.limbs_[top] == 0) --top;
  if (top < 0) return {};
  const auto digit = [&](int k) { return k < 0 ? uint64_t{0} : static_cast<uint64_t>(sum.limbs_[k]); };
  // Takes the 64 bits from the highest set bit on, and notes whether any lower bit is set.
  const int width = 64 - std::countl_zero(digit(top));
  uint64_t bits = digit(top) << (64 - width);
  bits |= width <= 32 ? digit(top - 1) << (32 - width) : digit(top - 1) >> (width - 32);
  uint64_t rest = 0;
  if (width <= 32) {
    bits |= digit(top - 2) >> width;
    rest = digit(top - 2) << (64 - width);
  } else {
    rest = digit(top - 1) << (96 - width) | digit(top - 2);
  }
  for (int k = top - 3; k >= 0 && rest == 0; --k) rest = digit(k);
  const int exponent = 32 * top + kLowestExponent + width - 64;  // exponent of the lowest of the 64 bits
  const int drop = std::max(11, lowest_exponent - exponent);
  if (drop > 64) return {};
  const uint64_t kept = drop == 64 ? 0 : bits >> drop, half = uint64_t{1} << (drop - 1);
  const uint64_t below = drop == 64 ? bits : bits & (2 * half - 1);
  const bool up = below > half || (below == half && (rest != 0 || (kept & 1) != 0));
  const auto mantissa = static_cast<double>(kept + (up ? 1 : 0));
  return {negative ? -mantissa : mantissa, exponent + drop};
}

double ExactSum::value() const {
  if (const double found = special(); found != 0) return found;
  const auto [mantissa, exponent] = rounded(-1074);
  return std::ldexp(mantissa, exponent);
}

double ExactSum::root() const {
  if (const double found = special(); found != 0) return std::sqrt(found);
  auto [mantissa, exponent] = rounded(kLowestExponent);
  if ((exponent & 1) != 0) mantissa *= 2, --exponent;
  return std::ldexp(std::sqrt(mantissa), exponent / 2);
}

ExactSum::Limbs ExactSum::limbs() const {
  auto out = *this;
  out.carry();
  return out.limbs_;
}

}  // namespace npu_train
