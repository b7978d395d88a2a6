/// Row by row evaluation of an affine map, shared by affine_nearest and its form for batches.
#pragma once

#include <cstdint>

namespace npu_train::detail {

/// An inverse map: out(y, x) = in(m[3] x + m[4] y + m[5], m[0] x + m[1] y + m[2]) at pixel centres.
struct AffineMap {
  double m[6];
};

/// An affine map in fixed point, evaluated row by row. Error(Usage) if it leads too far away.
class FixedMap {
 public:
  FixedMap(const AffineMap& map, int64_t height, int64_t width);
  /// Fractional bits.
  int bits() const { return bits_; }
  /// Source position of the first pixel of output row y, and the step from pixel to pixel.
  int32_t x_start(int64_t y) const { return fixed(map_.m[0] * 0.5 + map_.m[1] * (static_cast<double>(y) + 0.5) + map_.m[2]); }
  int32_t y_start(int64_t y) const { return fixed(map_.m[3] * 0.5 + map_.m[4] * (static_cast<double>(y) + 0.5) + map_.m[5]); }
  int32_t x_step() const { return fixed(map_.m[0]); }
  int32_t y_step() const { return fixed(map_.m[3]); }

 private:
  int32_t fixed(double value) const;

  AffineMap map_;
  int bits_ = 16;
};

/// Returns the inverse map of a counter-clockwise rotation around the centre of an image of this size.
AffineMap rotation_map(double degrees, int64_t height, int64_t width);

}  // namespace npu_train::detail
