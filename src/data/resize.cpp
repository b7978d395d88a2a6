#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "data/simd.hpp"
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

/// One output row: the weighted sum of `count` rows of n bytes.
NPU_TRAIN_SIMD void sum_rows(const uint8_t* src, int64_t row_bytes, int64_t n, const float* weights, int count, float* out) {
  constexpr int kTile = 32;
  int64_t x = 0;
  for (; x + kTile <= n; x += kTile) {
    float sum[kTile] = {};
    for (int k = 0; k < count; ++k) {
      const uint8_t* line = src + k * row_bytes + x;
      const float weight = weights[k];
      for (int i = 0; i < kTile; ++i) sum[i] += weight * static_cast<float>(line[i]);
    }
    for (int i = 0; i < kTile; ++i) out[x + i] = sum[i];
  }
  for (; x < n; ++x) {
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += weights[k] * static_cast<float>(src[k * row_bytes + x]);
    out[x] = sum;
  }
}

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint8_t Byte4 __attribute__((vector_size(4)));

/// One output row, packed, from one row of packed floats. No value leaves 0..255: the weights are positive and add up to one.
NPU_TRAIN_SIMD void sum_columns(const float* src, const int32_t* first, const int32_t* count, const float* weights, int64_t stride,
                                int64_t n, uint8_t* out) {
  for (int64_t x = 0; x < n; ++x, weights += stride) {
    const float* in = src + first[x] * 4;
    Float4 sum = {0.5f, 0.5f, 0.5f, 0.5f};
    for (int k = 0; k < count[x]; ++k) {
      Float4 pixel;
      std::memcpy(&pixel, in + k * 4, sizeof(pixel));
      sum += weights[k] * pixel;
    }
    const Byte4 bytes = __builtin_convertvector(__builtin_convertvector(sum, Int4), Byte4);
    std::memcpy(out + x * 4, &bytes, sizeof(bytes));
  }
}

NPU_TRAIN_SIMD void unpack(const uint8_t* packed, int64_t n, uint8_t* plane) {
  for (int64_t x = 0; x < n; ++x) plane[x] = packed[x * 4];
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
  std::vector<float> line(used * 4);
  std::vector<uint8_t> pixels(width * 4);
  for (int64_t y = 0; y < height; ++y) {
    sum_rows(packed.packed_row(rows.first[y]) + left * 4, packed.width() * 4, used * 4, rows.weights.data() + y * rows.stride,
             rows.count[y], line.data());
    sum_columns(line.data(), cols.first.data(), cols.count.data(), cols.weights.data(), cols.stride, width, pixels.data());
    for (int64_t c = 0; c < image.channels(); ++c) unpack(pixels.data() + c, width, out.mutable_plane(c) + y * width);
  }
  return out;
}

Image resize(const Image& image, int64_t height, int64_t width) {
  if (image.height() == height && image.width() == width) return image;
  return resize(image, height, width, 0, 0, static_cast<double>(image.height()), static_cast<double>(image.width()));
}

}  // namespace npu_train
