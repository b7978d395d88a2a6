#include "npu_train/data/generated.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {
namespace {

constexpr int kSide = 32;
constexpr int kClasses = 10;
const std::vector<std::string> kNames = {"disc", "square", "triangle", "ring", "plus", "star", "bar", "crescent", "frame", "dots"};

struct Point {
  float x, y;
};

float length(Point p) { return std::sqrt(p.x * p.x + p.y * p.y); }
float disc(Point p, float x, float y, float radius) { return length({p.x - x, p.y - y}) - radius; }
float box(Point p, float half_width, float half_height) { return std::max(std::abs(p.x) - half_width, std::abs(p.y) - half_height); }

float triangle(Point p) {
  constexpr float kHalfRoot3 = 0.8660254f;
  return std::max({p.y, kHalfRoot3 * p.x - 0.5f * p.y, -kHalfRoot3 * p.x - 0.5f * p.y}) - 0.5f;
}

/// A star with five points at radius 1 and notches at radius 0.42. By symmetry, one of ten mirrored wedges is enough.
float star(Point p) {
  constexpr float kWedge = std::numbers::pi_v<float> / 5.0f, kNotch = 0.42f;
  const float radius = length(p);
  const float turn = std::remainder(std::atan2(p.x, -p.y), 2.0f * kWedge);
  const Point q = {radius * std::cos(turn), radius * std::abs(std::sin(turn))};
  // The edge from the point (1, 0) to the notch. Positions on its left are outside.
  const Point notch = {kNotch * std::cos(kWedge), kNotch * std::sin(kWedge)};
  const Point edge = {notch.x - 1.0f, notch.y};
  return ((q.x - 1.0f) * -edge.y + q.y * edge.x) / -length(edge);
}

/// Returns the approximate signed distance to the edge of a shape of radius 1: negative inside.
float distance(int label, Point p) {
  switch (label) {
    case 0:
      return length(p) - 0.9f;
    case 1:
      return box(p, 0.78f, 0.78f);
    case 2:
      return triangle({p.x, p.y - 0.15f});
    case 3:
      return std::abs(length(p) - 0.72f) - 0.2f;
    case 4:
      return std::min(box(p, 0.95f, 0.28f), box(p, 0.28f, 0.95f));
    case 5:
      return star(p);
    case 6:
      return box(p, 0.95f, 0.3f);
    case 7:
      return std::max(length(p) - 0.95f, -disc(p, 0.45f, 0.0f, 0.8f));
    case 8:
      return std::abs(box(p, 0.66f, 0.66f)) - 0.18f;
    default:
      return std::min(disc(p, -0.58f, 0.0f, 0.4f), disc(p, 0.58f, 0.0f, 0.4f));
  }
}

struct Color {
  float value[3];
  float brightness() const { return 0.299f * value[0] + 0.587f * value[1] + 0.114f * value[2]; }
};

Color draw_color(Philox& rng) { return {{rng.uniform(), rng.uniform(), rng.uniform()}}; }

/// Draws two colours whose brightness differs enough; either may be the lighter one.
std::pair<Color, Color> draw_colors(float contrast, Philox& rng) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const Color a = draw_color(rng), b = draw_color(rng);
    if (std::abs(a.brightness() - b.brightness()) >= contrast) return {a, b};
  }
  const Color dark = {{0.05f, 0.05f, 0.05f}}, light = {{0.95f, 0.95f, 0.95f}};
  return rng.below(2) == 0 ? std::pair{dark, light} : std::pair{light, dark};
}

/// Noise of standard deviation 1: the sum of two bytes; each draw gives two values.
class Noise {
 public:
  explicit Noise(Philox& rng) : rng_(rng) {}
  float operator()() {
    if (!left_) word_ = rng_();
    const uint32_t half = left_ ? word_ >> 16 : word_ & 0xffffu;
    left_ = !left_;
    constexpr float kDeviation = 104.51f;  // standard deviation of the sum of two bytes
    return (static_cast<float>((half & 0xffu) + (half >> 8)) - 255.0f) / kDeviation;
  }

 private:
  Philox& rng_;
  uint32_t word_ = 0;
  bool left_ = false;
};

void draw(int label, const ShapeStyle& style, Philox& rng, uint8_t* planes) {
  const auto side = static_cast<float>(kSide);
  const float scale = rng.uniform(static_cast<float>(style.min_scale), static_cast<float>(style.max_scale)) * side;
  const auto shift = static_cast<float>(style.shift) * side;
  const float cx = 0.5f * side + rng.uniform(-shift, shift), cy = 0.5f * side + rng.uniform(-shift, shift);
  const float angle = rng.uniform(-1.0f, 1.0f) * static_cast<float>(style.rotation) * std::numbers::pi_v<float> / 180.0f;
  const float c = std::cos(angle) / scale, s = std::sin(angle) / scale;
  const auto [background, shape] = draw_colors(static_cast<float>(style.contrast), rng);
  // The brightness of the background has a slight gradient.
  const float slope_x = rng.uniform(-0.1f, 0.1f) / side, slope_y = rng.uniform(-0.1f, 0.1f) / side;
  Noise noise(rng);
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const float dx = static_cast<float>(x) + 0.5f - cx, dy = static_cast<float>(y) + 0.5f - cy;
      const float cover = std::clamp(0.5f - distance(label, {c * dx + s * dy, c * dy - s * dx}) * scale, 0.0f, 1.0f);
      const float slope = slope_x * dx + slope_y * dy;
      for (int k = 0; k < 3; ++k) {
        const float value = background.value[k] + slope + cover * (shape.value[k] - background.value[k] - slope) +
                            static_cast<float>(style.noise) * noise();
        planes[(k * kSide + y) * kSide + x] = static_cast<uint8_t>(std::clamp(value * 255.0f + 0.5f, 0.0f, 255.0f));
      }
    }
  }
}

/// Labels come in blocks of ten; each block has its own order.
int label_of(uint64_t seed, int64_t index) {
  Philox rng(derive_seed(seed, "labels", static_cast<uint64_t>(index / kClasses)));
  std::array<int, kClasses> order;
  for (int i = 0; i < kClasses; ++i) order[i] = i;
  for (uint32_t i = kClasses - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
  return order[index % kClasses];
}

}  // namespace

MemoryImages generate_shapes(int64_t count, uint64_t seed, const ShapeStyle& style) {
  check(count >= 1 && count <= 10'000'000, ErrorKind::Usage, "generated", count, " images; allowed: 1 to 10,000,000");
  check(style.min_scale > 0 && style.min_scale <= style.max_scale, ErrorKind::Usage, "generated", "min_scale is ", style.min_scale,
        " and max_scale ", style.max_scale, "; they must be positive and in ascending order");
  DatasetInfo info;
  info.name = "generated";
  info.num_classes = kClasses;
  info.class_names = kNames;
  info.shape = {3, kSide, kSide};
  info.mean = {0.5, 0.5, 0.5};
  info.std = {0.28, 0.28, 0.28};
  constexpr int64_t kBytes = 3 * kSide * kSide;
  std::vector<uint8_t> pixels(count * kBytes);
  std::vector<int64_t> labels(count);
  for (int64_t i = 0; i < count; ++i) {
    const int label = label_of(seed, i);
    Philox rng(derive_seed(seed, "shapes", static_cast<uint64_t>(i)));
    labels[i] = label;
    draw(label, style, rng, pixels.data() + i * kBytes);
  }
  return MemoryImages(std::move(pixels), std::move(labels), std::move(info));
}

GeneratedOptions::GeneratedOptions() {
  image_size = 32;
  train_transforms = {part("random_crop", {{"size", 32}, {"padding", 2}}), part("horizontal_flip"), part("resize"), part("normalize")};
  val_transforms = {part("resize"), part("normalize")};
}

const ConfigTable<ShapeStyle>& ShapeStyle::config_table() {
  static const auto table =
      ConfigTable<ShapeStyle>("data generated style")
          .field("noise", &ShapeStyle::noise, "standard deviation of pixel noise, 1 = full scale", between(0, 1))
          .field("min_scale", &ShapeStyle::min_scale, "radius of the smallest shape, 1 = side of the image", between(0.05, 1))
          .field("max_scale", &ShapeStyle::max_scale, "radius of the largest shape", between(0.05, 1))
          .field("rotation", &ShapeStyle::rotation, "largest rotation in either direction, degrees", between(0, 180))
          .field("shift", &ShapeStyle::shift, "largest displacement of the centre, 1 = side of the image", between(0, 0.5))
          .field("contrast", &ShapeStyle::contrast, "minimum difference of brightness between shape and background", between(0, 0.9));
  return table;
}

const ConfigTable<GeneratedOptions>& GeneratedOptions::config_table() {
  static const auto table =
      data_fields(ConfigTable<GeneratedOptions>("data generated")
                      .field("train_size", &GeneratedOptions::train_size, "number of training images", between(1, 10'000'000))
                      .field("val_size", &GeneratedOptions::val_size, "number of validation images", between(1, 10'000'000))
                      .field("data_seed", &GeneratedOptions::data_seed, "seed of the images; the run's seed does not affect them")
                      .field("style", &GeneratedOptions::style, "difficulty of the images"));
  return table;
}

}  // namespace npu_train
