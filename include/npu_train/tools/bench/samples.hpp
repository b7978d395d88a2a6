/// Times that were measured, and what may be concluded from them. A machine's speed drifts by tens of percent, so that two runs one after
/// the other prove nothing: what is compared is measured in turn, pair by pair.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Below so many pairs, or times on a side, there is no interval of 95 %, so there is no verdict.
inline constexpr int64_t kLeastForVerdict = 6;

/// Seconds of repetitions of one thing, in the order in which they were measured.
struct Samples {
  std::vector<double> seconds;

  size_t size() const { return seconds.size(); }
  double min() const;
  double median() const { return percentile(50); }
  /// The smallest value that at least `p` percent do not exceed (nearest rank); NaN without values.
  double percentile(double p) const;
  /// Between which the median lies in 95 of 100 cases, by order statistics (ranks n/2 -+ 0.98 sqrt(n)); of few values, all of them.
  std::pair<double, double> median_interval() const;
  /// Half the distance between the quartiles over the median: how much single repetitions scatter; NaN without values.
  double scatter() const;
};

/// How much faster one thing is than another.
struct SpeedRatio {
  enum class Verdict { Faster, Slower, NoDifference, TooFewPairs };

  double value = 0;          ///< time of the other over time of the one, best against best: above 1 is faster
  double median = 0;         ///< of the ratios pair by pair
  double low = 0, high = 0;  ///< between which the median of the ratios lies in at least 95 of 100 cases
  int64_t pairs = 0;
  /// NoDifference where [low, high] holds 1, or where best against best says the contrary of the pairs; TooFewPairs below 6 pairs, of
  /// which no interval of 95 % can be had.
  Verdict verdict = Verdict::TooFewPairs;

  /// "1.32 times as fast (1.28 to 1.37)", "no difference beyond the scatter (0.97 to 1.05)".
  std::string str() const;
};

/// Of times measured in turn: `one[i]` beside `other[i]`. The interval is that of the sign test: order statistics of the ratios, which asks
/// nothing of how times are distributed. Error(Usage) when the lengths differ, or a time is not a positive number.
SpeedRatio speed_ratio(const Samples& one, const Samples& other);

/// Both sides of a comparison.
struct PairedSamples {
  Samples one, other;
  SpeedRatio ratio() const { return speed_ratio(one, other); }
};

/// Runs `one` and `other` in turn, each first `warmup` times and then `pairs` times, in the order 1 2 2 1 1 2 2 1, so that a drift of the
/// machine hits both alike. Each call must be complete when it returns (wait for the device).
PairedSamples measure_in_turn(const std::function<void()>& one, const std::function<void()>& other, int64_t pairs, int64_t warmup = 1);

/// Runs `fn` `warmup` times and then `count` times.
Samples measure(const std::function<void()>& fn, int64_t count, int64_t warmup = 1);

}  // namespace npu_train
