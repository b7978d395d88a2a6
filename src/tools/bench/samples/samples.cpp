#include "npu_train/tools/bench/samples.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

constexpr double kOutside = 0.025;  // probability that the median is beyond one end; at most this with 6 values (2^-6), not with 5 (2^-5)

double timed(const std::function<void()>& fn) {
  const SteadyClock clock;
  const auto begin = clock.now();
  fn();
  return clock.now() - begin;
}

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

/// Returns the largest k for which n fair coins show at most k heads with a probability of at most `kOutside`; -1: none.
int64_t sign_test_rank(int64_t n) {
  double tail = 0, term = std::exp2(-static_cast<double>(std::min<int64_t>(n, 1000)));
  if (n > 1000) return static_cast<int64_t>(static_cast<double>(n) / 2 - 0.98 * std::sqrt(static_cast<double>(n))) - 1;
  for (int64_t k = 0; k < n; ++k) {
    tail += term;
    if (tail > kOutside) return k - 1;
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return -1;
}

SpeedRatio::Verdict judge(const SpeedRatio& r) {
  if (r.pairs < kLeastForVerdict) return SpeedRatio::Verdict::TooFewPairs;
  if (r.low > 1 && r.value > 1) return SpeedRatio::Verdict::Faster;
  if (r.high < 1 && r.value < 1) return SpeedRatio::Verdict::Slower;
  return SpeedRatio::Verdict::NoDifference;
}

}  // namespace

double Samples::min() const { return percentile(0); }

double Samples::percentile(double p) const {
  if (seconds.empty()) return std::nan("");
  const auto all = sorted(seconds);
  const auto rank = std::ceil(p / 100 * static_cast<double>(all.size()));
  return all[static_cast<size_t>(std::clamp(rank - 1, 0.0, static_cast<double>(all.size() - 1)))];
}

std::pair<double, double> Samples::median_interval() const {
  const auto half = 98 / std::sqrt(static_cast<double>(seconds.size()));  // percent
  return {percentile(50 - half), percentile(50 + half)};
}

double Samples::scatter() const { return (percentile(75) - percentile(25)) / 2 / median(); }

SpeedRatio speed_ratio(const Samples& one, const Samples& other) {
  check(one.size() == other.size() && one.size() > 0, ErrorKind::Usage, "bench", one.size(), " and ", other.size(),
        " times; the numbers must be equal and more than 0, from interleaved measurements");
  std::vector<double> ratios;
  for (size_t i = 0; i < one.size(); ++i) {
    const double a = one.seconds[i], b = other.seconds[i];
    check(a > 0 && b > 0 && std::isfinite(a + b), ErrorKind::Usage, "bench", "two times are ", a, " and ", b,
          " s; both must be positive numbers");
    ratios.push_back(b / a);
  }
  ratios = sorted(std::move(ratios));
  SpeedRatio out{.value = other.min() / one.min()};
  out.pairs = static_cast<int64_t>(ratios.size());
  out.median = ratios[ratios.size() / 2];
  const auto rank = static_cast<size_t>(std::max<int64_t>(0, sign_test_rank(out.pairs)));
  out.low = ratios[rank];
  out.high = ratios[ratios.size() - 1 - rank];
  out.verdict = judge(out);
  return out;
}

std::string SpeedRatio::str() const {
  const auto range = " (" + short_number(low, 3) + " to " + short_number(high, 3) + ")";
  switch (verdict) {
    case Verdict::Faster:
    case Verdict::Slower:
      return short_number(value, 3) + " times as fast" + range;
    case Verdict::NoDifference:
      return "no difference beyond the scatter" + range;
    case Verdict::TooFewPairs:
      break;
  }
  return short_number(value, 3) + " times as fast, from " + std::to_string(pairs) + " pairs: too few for a verdict";
}

PairedSamples measure_alternately(const std::function<void()>& one, const std::function<void()>& other, int64_t pairs, int64_t warmup) {
  for (int64_t i = 0; i < warmup; ++i) one(), other();
  PairedSamples out;
  for (int64_t i = 0; i < pairs; ++i) {
    if (i % 2 == 0) out.one.seconds.push_back(timed(one));
    out.other.seconds.push_back(timed(other));
    if (i % 2 == 1) out.one.seconds.push_back(timed(one));
  }
  return out;
}

Samples measure(const std::function<void()>& fn, int64_t count, int64_t warmup) {
  for (int64_t i = 0; i < warmup; ++i) fn();
  Samples out;
  for (int64_t i = 0; i < count; ++i) out.seconds.push_back(timed(fn));
  return out;
}

}  // namespace npu_train
