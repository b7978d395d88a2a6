#include "tools/report/axis.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "npu_train/tools/report/report.hpp"
#include "tools/report/digits.hpp"

namespace npu_train::detail {
namespace {

constexpr int kTicks = 5;
constexpr double kZeroPlace = 0.09;
constexpr double kLargest = std::numeric_limits<double>::max();

// Returns the smallest of 1, 2, 5 times a power of ten that is not below `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1, 2, 5})
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

// Returns the text of a tick, with as many digits as neighbouring ticks need to differ.
std::string tick_text(double value, double step, double largest) {
  if (std::abs(value) < step * 1e-6) return "0";
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  if (largest < 1e6 && decimals <= 4) return fixed(value, decimals);
  const auto digits = static_cast<int>(std::ceil(std::log10(largest) - std::log10(step))) + 1;
  return scientific(value, std::clamp(digits, 1, 17));
}

}  // namespace

void Extent::include(double value) {
  if (!std::isfinite(value)) return;
  low = empty ? value : std::min(low, value);
  high = empty ? value : std::max(high, value);
  whole = whole && value == std::trunc(value);
  empty = false;
}

Axis Axis::linear(Extent extent, bool rounded) {
  if (extent.empty) extent.include(0);
  Axis out;
  out.low_ = extent.low;
  out.high_ = extent.high;
  // The extent may have one value, or values too close to distinguish: the axis then extends around them.
  const double largest = std::max(std::abs(extent.low), std::abs(extent.high));
  if (!(out.high_ / 2 - out.low_ / 2 > largest * 1e-13) || out.high_ - out.low_ < 1e-300) {
    const double pad = extent.whole && largest < 1e6 ? 1 : std::max(largest * 0.1, 1e-299);
    out.low_ = std::max(out.low_ - pad, -kLargest);
    out.high_ = std::min(out.high_ + pad, kLargest);
  }
  double step = round_step(out.high_ / kTicks - out.low_ / kTicks);
  if (extent.whole) step = std::max(step, 1.0);
  if (rounded) {
    out.low_ = std::max(std::floor(out.low_ / step + 1e-9) * step, -kLargest);
    out.high_ = std::min(std::ceil(out.high_ / step - 1e-9) * step, kLargest);
  }
  out.add_ticks(step, std::max(std::abs(out.low_), std::abs(out.high_)));
  return out;
}

void Axis::add_ticks(double step, double largest) {
  const double first = std::ceil(low_ / step - 1e-6);
  const auto count = static_cast<int>(std::floor(high_ / step - first + 1e-6)) + 1;
  for (int i = 0; i < std::min(count, 4 * kTicks); ++i) {
    const double value = (first + i) * step;
    if (std::isfinite(value)) ticks_.push_back({value, tick_text(value, step, largest)});
  }
}

Axis Axis::logarithmic(Extent positive, bool zero) {
  Axis out;
  out.logarithmic_ = true;
  if (zero) {
    out.floor_ = kZeroPlace;
    out.ticks_.push_back({0, "0"});
  }
  if (positive.empty) return out;
  const double first = std::log10(positive.low), last = std::log10(positive.high);
  const double begin = std::floor(first + 1e-9), end = std::ceil(last - 1e-9);
  if (end - begin > 2) {
    out.low_ = begin;
    out.high_ = end;
    const auto stride = static_cast<int>(std::ceil((end - begin) / (kTicks + 1)));
    for (auto e = static_cast<int>(begin); e <= static_cast<int>(end); e += stride) {
      const double value = std::pow(10, e);
      if (value > 0 && std::isfinite(value)) out.ticks_.push_back({value, short_number(value)});
    }
    return out;
  }
  // An axis of little more than a decade has ticks at 1, 2 and 5 of each decade.
  constexpr double kTolerance = 1e-9;
  std::vector<double> candidates;
  for (auto e = static_cast<int>(begin) - 1; e <= static_cast<int>(end) + 1; ++e)
    for (const double factor : {1, 2, 5})
      if (const double value = factor * std::pow(10, e); value > 0 && std::isfinite(value)) candidates.push_back(value);
  auto low = std::upper_bound(candidates.begin(), candidates.end(), positive.low * (1 + kTolerance));
  auto high = std::lower_bound(candidates.begin(), candidates.end(), positive.high * (1 - kTolerance));
  if (low != candidates.begin()) --low;
  if (high == candidates.end()) --high;
  if (low == high) low == candidates.begin() ? ++high : --low;
  out.low_ = std::min(std::log10(*low), first);
  out.high_ = std::max(std::log10(*high), last);
  for (auto i = low; i <= high; ++i) out.ticks_.push_back({*i, short_number(*i)});
  return out;
}

double Axis::at(double value) const {
  if (!logarithmic_) return (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
  if (value <= 0) return 0;
  return floor_ + (1 - floor_) * (std::log10(value) - low_) / (high_ - low_);
}

}  // namespace npu_train::detail
