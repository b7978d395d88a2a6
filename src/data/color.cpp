#include "npu_train/data/color.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "data/simd.hpp"

namespace npu_train {
namespace {

inline uint8_t to_byte(float value) { return static_cast<uint8_t>(static_cast<int32_t>(std::min(std::max(value, 0.0f), 255.0f))); }

/// degenerate + factor * (value - degenerate), cut to a byte.
NPU_TRAIN_SIMD void blend_with_constant(uint8_t* p, int64_t n, float constant, float factor) {
  for (int64_t i = 0; i < n; ++i) p[i] = to_byte(constant + factor * (static_cast<float>(p[i]) - constant));
}

NPU_TRAIN_SIMD void blend_with_gray(uint8_t* __restrict__ r, uint8_t* __restrict__ g, uint8_t* __restrict__ b, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t red = r[i], green = g[i], blue = b[i];
    const auto gray = static_cast<float>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
    r[i] = to_byte(gray + factor * (static_cast<float>(red) - gray));
    g[i] = to_byte(gray + factor * (static_cast<float>(green) - gray));
    b[i] = to_byte(gray + factor * (static_cast<float>(blue) - gray));
  }
}

NPU_TRAIN_SIMD int32_t sum_of_luma(const uint8_t* r, const uint8_t* g, const uint8_t* b, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (r[i] * 19595 + g[i] * 38470 + b[i] * 7471 + 0x8000) >> 16;
  return sum;
}

/// The distance of a channel below the brightest, 0 to 1, at `turn6` sixths of the circle (positive, any number of turns).
inline float hue_depth(float turn6) {
  const float k = turn6 - 6.0f * static_cast<float>(static_cast<int32_t>(turn6 * (1.0f / 6.0f)));
  return std::max(0.0f, std::min(std::min(k, 4.0f - k), 1.0f));
}

/// All choices are among integers and all arithmetic is done for every pixel: otherwise compilers leave the loop scalar, since a float
/// operation that is only sometimes done might trap.
NPU_TRAIN_SIMD void turn_hue(uint8_t* __restrict__ rp, uint8_t* __restrict__ gp, uint8_t* __restrict__ bp, int64_t n, float shift6) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t r = rp[i], g = gp[i], b = bp[i];
    const int32_t high = std::max(r, std::max(g, b));
    const int32_t chroma = high - std::min(r, std::min(g, b));
    const int32_t rise = high == r ? g - b : (high == g ? b - r : r - g);
    const int32_t sector = high == r ? 0 : (high == g ? 2 : 4);
    // One turn more, so that it stays positive.
    const float hue = static_cast<float>(rise) / static_cast<float>(std::max(chroma, 1)) + static_cast<float>(sector) + shift6 + 6.0f;
    const auto top = static_cast<float>(high) + 0.5f, depth = static_cast<float>(chroma);
    rp[i] = static_cast<uint8_t>(static_cast<int32_t>(top - depth * hue_depth(hue + 5.0f)));
    gp[i] = static_cast<uint8_t>(static_cast<int32_t>(top - depth * hue_depth(hue + 3.0f)));
    bp[i] = static_cast<uint8_t>(static_cast<int32_t>(top - depth * hue_depth(hue + 1.0f)));
  }
}

}  // namespace

Image adjust_brightness(Image image, float factor) {
  Image out = std::move(image).own();
  blend_with_constant(out.mutable_plane(0), out.pixels() * out.channels(), 0.0f, factor);
  return out;
}

Image adjust_contrast(Image image, float factor) {
  Image out = std::move(image).own();
  const int64_t n = out.pixels(), chunk = 1 << 20;
  const int64_t green = out.channels() >= 3 ? 1 : 0, blue = out.channels() >= 3 ? 2 : 0;
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i += chunk)
    sum += sum_of_luma(out.plane(0) + i, out.plane(green) + i, out.plane(blue) + i, std::min(chunk, n - i));
  const auto mean = static_cast<float>(static_cast<int64_t>(static_cast<double>(sum) / static_cast<double>(n) + 0.5));
  blend_with_constant(out.mutable_plane(0), n * out.channels(), mean, factor);
  return out;
}

Image adjust_saturation(Image image, float factor) {
  if (image.channels() < 3) return image;
  Image out = std::move(image).own();
  blend_with_gray(out.mutable_plane(0), out.mutable_plane(1), out.mutable_plane(2), out.pixels(), factor);
  return out;
}

Image adjust_hue(Image image, float turns) {
  check(std::abs(turns) <= 0.5f, ErrorKind::Usage, "adjust_hue", "the hue shift is ", turns, "; it must be from -0.5 to 0.5");
  if (image.channels() < 3) return image;
  Image out = std::move(image).own();
  turn_hue(out.mutable_plane(0), out.mutable_plane(1), out.mutable_plane(2), out.pixels(), turns * 6.0f);
  return out;
}

ColorJitter::ColorJitter(double brightness, double contrast, double saturation, double hue)
    : strength_{static_cast<float>(brightness), static_cast<float>(contrast), static_cast<float>(saturation), static_cast<float>(hue)} {
  check(brightness >= 0 && contrast >= 0 && saturation >= 0, ErrorKind::Usage, "ColorJitter", "strengths are brightness ", brightness,
        ", contrast ", contrast, ", saturation ", saturation, "; none may be negative");
  check(hue >= 0 && hue <= 0.5, ErrorKind::Usage, "ColorJitter", "hue is ", hue, "; it must be from 0 to 0.5");
}

ColorJitter::Draw ColorJitter::draw(Philox& rng) const {
  Draw out{{Brightness, Contrast, Saturation, Hue}, {}};
  for (uint32_t i = 3; i > 0; --i) std::swap(out.order[i], out.order[rng.below(i + 1)]);
  for (const auto change : {Brightness, Contrast, Saturation})
    out.amount[change] = rng.uniform(std::max(0.0f, 1.0f - strength_[change]), 1.0f + strength_[change]);
  out.amount[Hue] = rng.uniform(-strength_[Hue], strength_[Hue]);
  return out;
}

Image ColorJitter::apply(Image image, Philox& rng) const {
  const Draw drawn = draw(rng);
  for (const int change : drawn.order) {
    if (!does(change)) continue;
    const float amount = drawn.amount[static_cast<size_t>(change)];
    if (change == Brightness) image = adjust_brightness(std::move(image), amount);
    if (change == Contrast) image = adjust_contrast(std::move(image), amount);
    if (change == Saturation) image = adjust_saturation(std::move(image), amount);
    if (change == Hue) image = adjust_hue(std::move(image), amount);
  }
  return image;
}

}  // namespace npu_train
