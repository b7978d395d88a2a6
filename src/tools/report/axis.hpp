// The positions of values along an axis, and its labels.
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

struct Tick {
  double value = 0;
  std::string text;
};

/// The values that an axis must hold. Grows by include(); values that are not finite do not count.
struct Extent {
  double low = 0, high = 0;
  bool empty = true;
  bool whole = true;  ///< integers only

  void include(double value);
};

/// Maps values to 0 (begin) .. 1 (end). Any finite doubles do, also denormal ones and those whose difference overflows.
class Axis {
 public:
  /// From the extent's smallest to its largest value, or, `rounded`, from a tick below to a tick above.
  static Axis linear(Extent extent, bool rounded);
  /// For positive values, between round numbers; `zero` gives 0 a place of its own at the begin.
  static Axis logarithmic(Extent positive, bool zero);

  double at(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }
  bool has_zero() const { return floor_ > 0; }
  /// Where the logarithmic part begins.
  double floor() const { return floor_; }

 private:
  void add_ticks(double step, double largest);

  double low_ = 0, high_ = 1;  // logarithmic: exponents of 10
  bool logarithmic_ = false;
  double floor_ = 0;
  std::vector<Tick> ticks_;
};

}  // namespace npu_train::detail
