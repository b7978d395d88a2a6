#include <algorithm>
#include <cmath>
#include <vector>

#include "data/image_kernels.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/image.hpp"

namespace npu_train {
namespace {

/// Weights of the inputs [first, first + count) of each output.
struct Taps {
  std::vector<int32_t> first, count;
  std::vector<float> weights;  // stride per output
  int64_t stride = 0;
};

Taps triangle_taps(int64_t in, int64_t out, double begin, double end) {
  const double scale = (end - begin) / static_cast<double>(out);
  const double radius = std::max(scale, 1.0);
  Taps taps;
  taps.stride = 2 * static_cast<int64_t>(std::ceil(radius)) + 1;
  taps.first.resize(out);
  taps.count.resize(out);
  taps.weights.assign(out * taps.stride, 0.0f);
  // The box also cuts the triangle, at pixel borders: pixels outside it are not read.
  const auto lowest = static_cast<int64_t>(std::floor(begin));
  const auto highest = std::min<int64_t>(in, static_cast<int64_t>(std::ceil(end)));
  std::vector<double> w(taps.stride);
  for (int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const int64_t a = std::max(lowest, static_cast<int64_t>(std::floor(centre - radius + 0.5)));
    const int64_t b = std::min(highest, static_cast<int64_t>(std::floor(centre + radius + 0.5)));
    double sum = 0;
    for (int64_t k = a; k < b; ++k) {
      w[k - a] = std::max(0.0, 1.0 - std::abs((static_cast<double>(k) + 0.5 - centre) / radius));
      sum += w[k - a];
    }
    taps.first[i] = static_cast<int32_t>(a);
    taps.count[i] = static_cast<int32_t>(b - a);
    for (int64_t k = 0; k < b - a; ++k) taps.weights[i * taps.stride + k] = static_cast<float>(w[k] / sum);
  }
  return taps;
}

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width, double y0, double x0, double y1, double x1) {
  check(y1 > y0 && x1 > x0 && y0 >= 0 && x0 >= 0 && y1 <= static_cast<double>(image.height()) && x1 <= static_cast<double>(image.width()),
        ErrorKind::Internal, "resize", "the box [", y0, ", ", y1, ") x [", x0, ", ", x1, ") is not inside ", image.height(), " x ",
        image.width());
  Image out = Image::allocate(height, width, image.channels());
  const Taps rows = triangle_taps(image.height(), height, y0, y1);
  Taps cols = triangle_taps(image.width(), width, x0, x1);
  const Image packed = image.dense(PixelOrder::Packed);
  // Only the columns that are looked at take part in the first pass.
  const int64_t left = cols.first.front();
  const int64_t used = cols.first.back() + cols.count.back() - left;
  for (auto& first : cols.first) first -= static_cast<int32_t>(left);
  const auto& kernels = detail::image_kernels();
  std::vector<float> line(used * 4);
  std::vector<uint8_t> pixels(width * 4);
  for (int64_t y = 0; y < height; ++y) {
    kernels.sum_rows(packed.packed_row(rows.first[y]) + left * 4, packed.width() * 4, used * 4, rows.weights.data() + y * rows.stride,
                     rows.count[y], line.data());
    kernels.sum_columns(line.data(), cols.first.data(), cols.count.data(), cols.weights.data(), cols.stride, width, pixels.data());
    kernels.unpack(pixels.data(), width, image.channels(), out.mutable_plane(0) + y * width, height * width);
  }
  return out;
}

Image resize(const Image& image, int64_t height, int64_t width) {
  if (image.height() == height && image.width() == width) return image;
  return resize(image, height, width, 0, 0, static_cast<double>(image.height()), static_cast<double>(image.width()));
}

}  // namespace npu_train
