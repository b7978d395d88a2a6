// The positions of values along an axis, and its labels.
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

struct Tick {
  double value = 0;
  std::string text;
};

/// The range of values on an axis. include() extends it; values that are not finite are ignored.
struct Extent {
  double low = 0, high = 0;
  bool empty = true;
  bool whole = true;  ///< whether all included values are integers

  void include(double value);
};

/// Maps values to 0 (begin) .. 1 (end). Accepts any finite doubles, including denormal ones and those whose difference overflows.
class Axis {
 public:
  /// Returns an axis from the extent's smallest to its largest value or, if `rounded`, from a tick below the smallest to a tick above the
  /// largest.
  static Axis linear(Extent extent, bool rounded);
  /// Returns an axis for positive values, between round numbers; `zero` reserves a separate place at its start for 0.
  static Axis logarithmic(Extent positive, bool zero);

  double at(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }
  bool has_zero() const { return floor_ > 0; }
  /// Returns the position where the logarithmic part begins.
  double floor() const { return floor_; }

 private:
  void add_ticks(double step, double largest);

  double low_ = 0, high_ = 1;  // logarithmic: exponents of 10
  bool logarithmic_ = false;
  double floor_ = 0;
  std::vector<Tick> ticks_;
};

}  // namespace npu_train::detail
