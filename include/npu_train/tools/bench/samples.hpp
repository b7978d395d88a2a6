/// Measured times, and conclusions from them. The speed of a machine drifts by tens of percent, so two successive runs prove nothing.
/// Programs are therefore compared in pairs of alternate measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Least number of pairs, or of times per side, for a verdict. With fewer, no interval has 95 % confidence.
inline constexpr int64_t kLeastForVerdict = 6;

/// Seconds of repetitions of one program, in the order of measurement.
struct Samples {
  std::vector<double> seconds;

  size_t size() const { return seconds.size(); }
  double min() const;
  double median() const { return percentile(50); }
  /// Returns the smallest value that is at least as large as `p` percent of the values (nearest rank); NaN without values.
  double percentile(double p) const;
  /// Returns the interval that contains the median in 95 of 100 cases, by order statistics (ranks n/2 -+ 0.98 sqrt(n)); for few values, the
  /// complete range.
  std::pair<double, double> median_interval() const;
  /// Returns the scatter of the repetitions: half the distance between the quartiles, divided by the median; NaN without values.
  double scatter() const;
};

/// The speed of one program relative to another.
struct SpeedRatio {
  enum class Verdict { Faster, Slower, NoDifference, TooFewPairs };

  double value = 0;          ///< best time of `other` divided by the best time of `one`; above 1, `one` is faster
  double median = 0;         ///< median of the ratios of pairs
  double low = 0, high = 0;  ///< interval that contains the median of the ratios in at least 95 of 100 cases
  int64_t pairs = 0;
  /// NoDifference if [low, high] contains 1, or if the ratio of the best times contradicts the pairs; TooFewPairs below 6 pairs, for which
  /// no interval has 95 % confidence.
  Verdict verdict = Verdict::TooFewPairs;

  /// Returns "1.32 times as fast (1.28 to 1.37)" or "no difference beyond the scatter (0.97 to 1.05)".
  std::string str() const;
};

/// Computes the ratio from interleaved measurements, in which `one[i]` is paired with `other[i]`. The interval is that of the sign test,
/// from order statistics of the ratios, which assumes no distribution of the times. Error(Usage) if the lengths differ, or a time is not a
/// positive number.
SpeedRatio speed_ratio(const Samples& one, const Samples& other);

/// Both sides of a comparison.
struct PairedSamples {
  Samples one, other;
  SpeedRatio ratio() const { return speed_ratio(one, other); }
};

/// Runs `one` and `other` alternately, each `warmup` times and then `pairs` times, in the order 1 2 2 1 1 2 2 1, so that a drift of the
/// machine affects both equally. Each call must return only when its work is complete (wait for the device).
PairedSamples measure_alternately(const std::function<void()>& one, const std::function<void()>& other, int64_t pairs, int64_t warmup = 1);

/// Runs `fn` `warmup` times, then `count` times; returns the times of those `count` runs.
Samples measure(const std::function<void()>& fn, int64_t count, int64_t warmup = 1);

}  // namespace npu_train
