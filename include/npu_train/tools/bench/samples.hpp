/// Measured times, and conclusions from them. A machine's speed drifts by tens of percent, so that two successive runs
/// prove nothing: compared programs are measured alternately, pair by pair.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// With fewer pairs, or times on a side, there is no interval of 95 %, so there is no verdict.
inline constexpr int64_t kLeastForVerdict = 6;

/// Seconds of repetitions of one program, in the order of measurement.
struct Samples {
  std::vector<double> seconds;

  size_t size() const { return seconds.size(); }
  double min() const;
  double median() const { return percentile(50); }
  /// The smallest value that at least `p` percent do not exceed (nearest rank); NaN without values.
  double percentile(double p) const;
  /// The interval that contains the median in 95 of 100 cases, by order statistics (ranks n/2 -+ 0.98 sqrt(n)); for few values, all of
  /// them.
  std::pair<double, double> median_interval() const;
  /// Half the distance between the quartiles divided by the median, as a measure of the scatter of repetitions; NaN without values.
  double scatter() const;
};

/// The speed of one program relative to another.
struct SpeedRatio {
  enum class Verdict { Faster, Slower, NoDifference, TooFewPairs };

  double value = 0;          ///< time of the other divided by time of the one, both the best: above 1 is faster
  double median = 0;         ///< of the ratios pair by pair
  double low = 0, high = 0;  ///< interval that contains the median of the ratios in at least 95 of 100 cases
  int64_t pairs = 0;
  /// NoDifference if [low, high] contains 1, or if the ratio of the best times contradicts the pairs; TooFewPairs below 6 pairs, for which
  /// there is no interval of 95 %.
  Verdict verdict = Verdict::TooFewPairs;

  /// "1.32 times as fast (1.28 to 1.37)", "no difference beyond the scatter (0.97 to 1.05)".
  std::string str() const;
};

/// From interleaved measurements: `one[i]` is paired with `other[i]`. The interval is that of the sign test, from order statistics of the
/// ratios, which requires no distribution of the times. Error(Usage) if the lengths differ, or a time is not a positive number.
SpeedRatio speed_ratio(const Samples& one, const Samples& other);

/// Both sides of a comparison.
struct PairedSamples {
  Samples one, other;
  SpeedRatio ratio() const { return speed_ratio(one, other); }
};

/// Runs `one` and `other` alternately, each first `warmup` times and then `pairs` times, in the order 1 2 2 1 1 2 2 1, so that a drift of
/// the machine affects both equally. The work of each call must be complete when it returns (wait for the device).
PairedSamples measure_alternately(const std::function<void()>& one, const std::function<void()>& other, int64_t pairs, int64_t warmup = 1);

/// Runs `fn` `warmup` times and then `count` times.
Samples measure(const std::function<void()>& fn, int64_t count, int64_t warmup = 1);

}  // namespace npu_train
