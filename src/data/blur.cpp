#include <algorithm>
#include <cmath>
#include <vector>

#include "data/pixels/image_kernels.hpp"
#include "npu_train/data/image_transforms.hpp"

namespace npu_train {
namespace {

/// Returns the index mirrored at the edges, repeatedly if needed; the edge itself is not repeated.
int64_t reflect(int64_t i, int64_t n) {
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

}  // namespace

std::vector<float> gaussian_weights(int64_t kernel, double sigma) {
  std::vector<float> weights(kernel);
  const auto bell = [&](int64_t k) { return std::exp(-0.5 * std::pow(static_cast<double>(k - kernel / 2) / sigma, 2)); };
  double total = 0;
  for (int64_t k = 0; k < kernel; ++k) total += bell(k);
  for (int64_t k = 0; k < kernel; ++k) weights[k] = static_cast<float>(bell(k) / total);
  return weights;
}

Image gaussian_blur(const Image& image, int64_t kernel, double sigma) {
  const Image in = image.dense(PixelOrder::Planar);
  const int64_t h = in.height(), w = in.width(), radius = kernel / 2;
  const std::vector<float> weights = gaussian_weights(kernel, sigma);
  const auto& kernels = detail::image_kernels();
  Image out = Image::allocate(h, w, in.channels());
  std::vector<float> wide(w + 2 * radius), blurred(h * w), sum(w);
  std::vector<const float*> rows(kernel);
  for (int64_t c = 0; c < in.channels(); ++c) {
    for (int64_t y = 0; y < h; ++y) {
      const uint8_t* src = in.plane(c) + y * w;
      for (int64_t x = 0; x < radius; ++x) {
        wide[x] = src[reflect(x - radius, w)];
        wide[radius + w + x] = src[reflect(w + x, w)];
      }
      std::copy(src, src + w, wide.begin() + radius);
      for (int64_t k = 0; k < kernel; ++k) rows[k] = wide.data() + k;
      kernels.sum_float_rows(rows.data(), w, weights.data(), kernel, blurred.data() + y * w);
    }
    for (int64_t y = 0; y < h; ++y) {
      for (int64_t k = 0; k < kernel; ++k) rows[k] = blurred.data() + reflect(y + k - radius, h) * w;
      kernels.sum_float_rows(rows.data(), w, weights.data(), kernel, sum.data());
      kernels.round_row(sum.data(), w, out.mutable_plane(c) + y * w);
    }
  }
  return out;
}

GaussianBlur::GaussianBlur(int64_t kernel, double min_sigma, double max_sigma)
    : kernel_(kernel), min_sigma_(min_sigma), max_sigma_(max_sigma) {
  check(kernel >= 1 && kernel % 2 == 1 && kernel <= 255, ErrorKind::Usage, "GaussianBlur", "kernel is ", kernel,
        "; it must be odd, from 1 to 255");
  check(min_sigma > 0 && min_sigma <= max_sigma, ErrorKind::Usage, "GaussianBlur", "sigma is [", min_sigma, ", ", max_sigma,
        "]; the limits must be positive and in ascending order");
}

Image GaussianBlur::apply(Image image, Philox& rng) const { return gaussian_blur(image, kernel_, draw(rng)); }

}  // namespace npu_train
