#include "npu_train/data/image_transforms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "data/pixels/image_kernels.hpp"

namespace npu_train {

Image adjust_brightness(Image image, float factor) {
  Image out = std::move(image).own();
  detail::image_kernels().blend_with_constant(out.mutable_plane(0), out.pixels() * out.channels(), 0.0f, factor);
  return out;
}

Image adjust_contrast(Image image, float factor) {
  Image out = std::move(image).own();
  const auto& kernels = detail::image_kernels();
  const int64_t n = out.pixels(), chunk = 1 << 20;
  const int64_t green = out.channels() >= 3 ? 1 : 0, blue = out.channels() >= 3 ? 2 : 0;
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i += chunk)
    sum += kernels.sum_of_luma(out.plane(0) + i, out.plane(green) + i, out.plane(blue) + i, std::min(chunk, n - i));
  const auto mean = static_cast<float>(static_cast<int64_t>(static_cast<double>(sum) / static_cast<double>(n) + 0.5));
  kernels.blend_with_constant(out.mutable_plane(0), n * out.channels(), mean, factor);
  return out;
}

Image adjust_saturation(Image image, float factor) {
  if (image.channels() < 3) return image;
  Image out = std::move(image).own();
  detail::image_kernels().blend_with_gray(out.mutable_plane(0), out.mutable_plane(1), out.mutable_plane(2), out.pixels(), factor);
  return out;
}

Image adjust_hue(Image image, float turns) {
  check(std::abs(turns) <= 0.5f, ErrorKind::Usage, "adjust_hue", "the hue shift is ", turns, "; it must be from -0.5 to 0.5");
  if (image.channels() < 3) return image;
  Image out = std::move(image).own();
  detail::image_kernels().turn_hue(out.mutable_plane(0), out.mutable_plane(1), out.mutable_plane(2), out.pixels(), turns * 6.0f);
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
