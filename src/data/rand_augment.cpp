#include "npu_train/data/image_transforms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace npu_train {
namespace {

using Table = std::array<uint8_t, 256>;

void look_up(uint8_t* p, int64_t n, const Table& table) {
  for (int64_t i = 0; i < n; ++i) p[i] = table[p[i]];
}

std::array<int64_t, 256> histogram(const uint8_t* p, int64_t n) {
  std::array<int64_t, 256> counts{};
  for (int64_t i = 0; i < n; ++i) ++counts[p[i]];
  return counts;
}

enum Change {
  Identity,
  ShearX,
  ShearY,
  TranslateX,
  TranslateY,
  Rotate,
  Brightness,
  Color,
  Contrast,
  Sharpness,
  Posterize,
  Solarize,
  AutoContrast,
  Equalize,
  kChanges
};

/// Applies one change. `strength` is 0 to 1; `sign` is 1 or -1, for changes that have two directions.
Image change(Image image, Change what, double strength, double sign) {
  const auto factor = static_cast<float>(1.0 + sign * 0.9 * strength);
  const auto shift = [&](int64_t side) { return std::trunc(sign * 150.0 / 331.0 * static_cast<double>(side) * strength); };
  switch (what) {
    // Shears keep the upper left corner in place.
    case ShearX:
      return affine_nearest(image, {1, sign * 0.3 * strength, 0, 0, 1, 0});
    case ShearY:
      return affine_nearest(image, {1, 0, 0, sign * 0.3 * strength, 1, 0});
    case TranslateX:
      return image.crop(0, static_cast<int64_t>(-shift(image.width())), image.height(), image.width());
    case TranslateY:
      return image.crop(static_cast<int64_t>(-shift(image.height())), 0, image.height(), image.width());
    case Rotate:
      return rotate_nearest(image, sign * 30.0 * strength);
    case Brightness:
      return adjust_brightness(std::move(image), factor);
    case Color:
      return adjust_saturation(std::move(image), factor);
    case Contrast:
      return adjust_contrast(std::move(image), factor);
    case Sharpness:
      return adjust_sharpness(std::move(image), factor);
    case Posterize:
      return posterize(std::move(image), 8 - static_cast<int>(std::nearbyint(4.0 * strength)));
    case Solarize:
      return solarize(std::move(image), static_cast<float>(255.0 * (1.0 - strength)));
    case AutoContrast:
      return autocontrast(std::move(image));
    case Equalize:
      return equalize(std::move(image));
    default:
      return image;
  }
}

}  // namespace

Image adjust_sharpness(Image image, float factor) {
  const Image in = image.dense(PixelOrder::Planar);
  Image out = Image(in).own();
  const int64_t h = in.height(), w = in.width();
  for (int64_t c = 0; c < in.channels(); ++c) {
    for (int64_t y = 1; y + 1 < h; ++y) {
      const uint8_t* row = in.plane(c) + y * w;
      uint8_t* dst = out.mutable_plane(c) + y * w;
      for (int64_t x = 1; x + 1 < w; ++x) {
        int sum = 4 * row[x];
        for (int64_t dy = -w; dy <= w; dy += w) sum += row[x + dy - 1] + row[x + dy] + row[x + dy + 1];
        const auto smooth = static_cast<float>(static_cast<int>(static_cast<float>(sum) / 13.0f + 0.5f));
        const float value = smooth + factor * (static_cast<float>(row[x]) - smooth);
        dst[x] = static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
      }
    }
  }
  return out;
}

Image posterize(Image image, int bits) {
  Table table;
  for (int v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(v & (0xff << (8 - bits)));
  Image out = std::move(image).own();
  look_up(out.mutable_plane(0), out.pixels() * out.channels(), table);
  return out;
}

Image solarize(Image image, float threshold) {
  Table table;
  for (int v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(static_cast<float>(v) < threshold ? v : 255 - v);
  Image out = std::move(image).own();
  look_up(out.mutable_plane(0), out.pixels() * out.channels(), table);
  return out;
}

Image autocontrast(Image image) {
  Image out = std::move(image).own();
  const int64_t n = out.pixels();
  for (int64_t c = 0; c < out.channels(); ++c) {
    uint8_t* p = out.mutable_plane(c);
    const auto [low, high] = std::minmax_element(p, p + n);
    const int lo = *low, hi = *high;
    if (hi <= lo) continue;
    Table table;
    const double scale = 255.0 / (hi - lo);
    for (int v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(std::clamp(static_cast<int>(v * scale - lo * scale), 0, 255));
    look_up(p, n, table);
  }
  return out;
}

Image equalize(Image image) {
  Image out = std::move(image).own();
  const int64_t n = out.pixels();
  for (int64_t c = 0; c < out.channels(); ++c) {
    uint8_t* p = out.mutable_plane(c);
    const auto counts = histogram(p, n);
    int64_t last = 255;
    while (counts[last] == 0) --last;
    const int64_t step = (n - counts[last]) / 255;
    if (step == 0) continue;
    Table table;
    int64_t below = step / 2;
    for (int v = 0; v < 256; ++v) {
      table[v] = static_cast<uint8_t>(std::min<int64_t>(below / step, 255));
      below += counts[v];
    }
    look_up(p, n, table);
  }
  return out;
}

RandAugment::RandAugment(int64_t num_ops, int64_t magnitude) : num_ops_(num_ops), strength_(static_cast<double>(magnitude) / 30.0) {
  check(num_ops >= 0 && num_ops <= 14 && magnitude >= 0 && magnitude <= 30, ErrorKind::Usage, "RandAugment", "num_ops is ", num_ops,
        " and magnitude ", magnitude, "; they may be 0 to 14 and 0 to 30");
}

Image RandAugment::apply(Image image, Philox& rng) const {
  for (int64_t i = 0; i < num_ops_; ++i) {
    const auto what = static_cast<Change>(rng.below(kChanges));
    const double sign = rng.below(2) == 0 ? 1.0 : -1.0;
    image = change(std::move(image), what, strength_, sign);
  }
  return image;
}

RandomErasing::RandomErasing(double p, double min_scale, double max_scale, double min_ratio, double max_ratio, std::vector<double> mean)
    : p_(p),
      min_scale_(min_scale),
      max_scale_(max_scale),
      min_log_ratio_(std::log(min_ratio)),
      max_log_ratio_(std::log(max_ratio)),
      mean_(std::move(mean)) {
  check(min_scale > 0 && min_scale <= max_scale && max_scale <= 1, ErrorKind::Usage, "RandomErasing", "scale is [", min_scale, ", ",
        max_scale, "]; the limits must be in (0, 1] and in ascending order");
  check(min_ratio > 0 && min_ratio <= max_ratio, ErrorKind::Usage, "RandomErasing", "ratio is [", min_ratio, ", ", max_ratio,
        "]; the limits must be positive and in ascending order");
}

std::optional<PixelBox> RandomErasing::draw(int64_t h, int64_t w, Philox& rng) const {
  if (rng.uniform() >= p_) return std::nullopt;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(h * w) * (min_scale_ + (max_scale_ - min_scale_) * rng.uniform());
    const double ratio = std::exp(min_log_ratio_ + (max_log_ratio_ - min_log_ratio_) * rng.uniform());
    const auto bh = static_cast<int64_t>(std::nearbyint(std::sqrt(area / ratio))),
               bw = static_cast<int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    if (bh < 1 || bw < 1 || bh >= h || bw >= w) continue;
    const int64_t top = rng.below(static_cast<uint32_t>(h - bh + 1)), left = rng.below(static_cast<uint32_t>(w - bw + 1));
    return PixelBox{top, left, bh, bw};
  }
  return std::nullopt;
}

uint8_t RandomErasing::fill(int64_t c) const {
  const double mean = mean_.empty() ? 0.0 : mean_[std::min<size_t>(c, mean_.size() - 1)];
  return static_cast<uint8_t>(std::clamp(std::nearbyint(mean * 255.0), 0.0, 255.0));
}

Image RandomErasing::apply(Image image, Philox& rng) const {
  const auto box = draw(image.height(), image.width(), rng);
  if (!box) return image;
  Image out = std::move(image).own();
  for (int64_t c = 0; c < out.channels(); ++c) {
    for (int64_t y = box->top; y < box->top + box->height; ++y)
      std::fill_n(out.mutable_plane(c) + y * out.width() + box->left, box->width, fill(c));
  }
  return out;
}

}  // namespace npu_train
