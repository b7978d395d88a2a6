#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "data/pixels/image_kernels.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/image.hpp"

namespace npu_train {
namespace {

/// Filter weights. Each output is a weighted sum of the inputs [first, first + count).
template <class Weight>
struct Taps {
  std::vector<int32_t> first, count;
  std::vector<Weight> weights;  // `stride` weights per output
  int64_t stride = 0;
};

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// Keys' cubic convolution (1981).
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// Computes the weights as Pillow does, operation by operation.
Taps<double> taps_of(int64_t in, int64_t out, double begin, double end, Interpolation interpolation) {
  const bool is_cubic = interpolation == Interpolation::Bicubic;
  const double scale = (end - begin) / static_cast<double>(out), wide = std::max(scale, 1.0);
  const double radius = (is_cubic ? 2 : 1) * wide;
  Taps<double> taps;
  taps.stride = 2 * static_cast<int64_t>(std::ceil(radius)) + 1;
  taps.first.resize(out);
  taps.count.resize(out);
  taps.weights.assign(out * taps.stride, 0.0);
  // The filter is also cut at the pixel borders of the box: pixels outside are not read.
  const auto lowest = static_cast<int64_t>(std::floor(begin));
  const auto highest = std::min<int64_t>(in, static_cast<int64_t>(std::ceil(end)));
  for (int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const int64_t a = std::max(lowest, static_cast<int64_t>(std::floor(centre - radius + 0.5)));
    const int64_t b = std::min(highest, static_cast<int64_t>(std::floor(centre + radius + 0.5)));
    auto* w = taps.weights.data() + i * taps.stride;
    double sum = 0;
    for (int64_t k = a; k < b; ++k) {
      const double x = (static_cast<double>(k) - centre + 0.5) * (1.0 / wide);
      w[k - a] = is_cubic ? cubic(x) : triangle(x);
      sum += w[k - a];
    }
    for (int64_t k = 0; k < b - a; ++k) w[k] /= sum;
    taps.first[i] = static_cast<int32_t>(a);
    taps.count[i] = static_cast<int32_t>(b - a);
  }
  return taps;
}

template <class Weight, class Convert>
Taps<Weight> converted(Taps<double> taps, const Convert& convert) {
  Taps<Weight> out{std::move(taps.first), std::move(taps.count), {}, taps.stride};
  out.weights.reserve(taps.weights.size());
  for (const double w : taps.weights) out.weights.push_back(convert(w));
  return out;
}

Taps<int32_t> fixed(Taps<double> taps) {
  return converted<int32_t>(std::move(taps),
                            [](double w) { return static_cast<int32_t>(w * (1 << detail::kWeightBits) + (w < 0 ? -0.5 : 0.5)); });
}

Taps<float> floats(Taps<double> taps) {
  return converted<float>(std::move(taps), [](double w) { return static_cast<float>(w); });
}

// Resizes rows, then columns, and rounds once.
void resize_at_once(const Image& packed, Image& out, const Taps<float>& rows, Taps<float> cols) {
  const int64_t width = out.width();
  // The first pass computes only the columns that the second one reads.
  const int64_t left = cols.first.front();
  const int64_t used = cols.first.back() + cols.count.back() - left;
  for (auto& first : cols.first) first -= static_cast<int32_t>(left);
  const auto& kernels = detail::image_kernels();
  std::vector<float> line(used * 4);
  std::vector<uint8_t> pixels(width * 4);
  for (int64_t y = 0; y < out.height(); ++y) {
    kernels.sum_rows(packed.packed_row(rows.first[y]) + left * 4, packed.width() * 4, used * 4, rows.weights.data() + y * rows.stride,
                     rows.count[y], line.data());
    kernels.sum_columns(line.data(), cols.first.data(), cols.count.data(), cols.weights.data(), cols.stride, width, pixels.data());
    kernels.unpack(pixels.data(), width, out.channels(), out.mutable_plane(0) + y * width, out.height() * width);
  }
}

using Bytes = std::vector<uint8_t>;  // packed pixels, row by row

Bytes resize_columns(const uint8_t* pixels, int64_t height, int64_t width, const Taps<int32_t>& taps) {
  const auto out_width = static_cast<int64_t>(taps.first.size());
  Bytes out(height * out_width * 4);
  for (int64_t y = 0; y < height; ++y)
    detail::image_kernels().round_columns(pixels + y * width * 4, taps.first.data(), taps.count.data(), taps.weights.data(), taps.stride,
                                          out_width, out.data() + y * out_width * 4);
  return out;
}

Bytes resize_rows(const uint8_t* pixels, int64_t width, const Taps<int32_t>& taps) {
  const auto out_height = static_cast<int64_t>(taps.first.size()), bytes = width * 4;
  Bytes out(out_height * bytes);
  for (int64_t y = 0; y < out_height; ++y)
    detail::image_kernels().round_rows(pixels + taps.first[y] * bytes, bytes, bytes, taps.weights.data() + y * taps.stride, taps.count[y],
                                       out.data() + y * bytes);
  return out;
}

// Resizes columns and rows, and rounds the result of each pass to bytes. `rows` or `cols` is nullptr if that direction keeps its size. As
// in Pillow 13, rows come first if the height shrinks by more than twice the shrinkage of the width. Earlier versions always resized
// columns first.
void resize_as_pillow(const Image& packed, Image& out, const Taps<int32_t>* rows, const Taps<int32_t>* cols) {
  const int64_t height = out.height(), width = out.width(), shrinks = packed.height() - height;
  const bool rows_first = shrinks > 0 && shrinks > 2 * (packed.width() - width);
  const uint8_t* pixels = packed.packed_row(0);
  Bytes of_rows, of_columns;
  if (rows != nullptr && rows_first) pixels = (of_rows = resize_rows(pixels, packed.width(), *rows)).data();
  if (cols != nullptr)
    pixels = (of_columns = resize_columns(pixels, rows != nullptr && rows_first ? height : packed.height(), packed.width(), *cols)).data();
  if (rows != nullptr && !rows_first) pixels = (of_rows = resize_rows(pixels, width, *rows)).data();
  for (int64_t y = 0; y < height; ++y)
    detail::image_kernels().unpack(pixels + y * width * 4, width, out.channels(), out.mutable_plane(0) + y * width, height * width);
}

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width, const Resampling& how, double y0, double x0, double y1, double x1) {
  check(y1 > y0 && x1 > x0 && y0 >= 0 && x0 >= 0 && y1 <= static_cast<double>(image.height()) && x1 <= static_cast<double>(image.width()),
        ErrorKind::Internal, "resize", "the box [", y0, ", ", y1, ") x [", x0, ", ", x1, ") is not inside ", image.height(), " x ",
        image.width());
  Image out = Image::allocate(height, width, image.channels());
  auto rows = taps_of(image.height(), height, y0, y1, how.interpolation), cols = taps_of(image.width(), width, x0, x1, how.interpolation);
  const Image packed = image.dense(PixelOrder::Packed);
  if (how.exact || how.interpolation != Interpolation::Bilinear) {
    const auto keeps = [](int64_t in, int64_t to, double begin, double end) {
      return in == to && begin == 0 && end == static_cast<double>(in);
    };
    const auto fixed_rows = fixed(std::move(rows)), fixed_cols = fixed(std::move(cols));
    resize_as_pillow(packed, out, keeps(image.height(), height, y0, y1) ? nullptr : &fixed_rows,
                     keeps(image.width(), width, x0, x1) ? nullptr : &fixed_cols);
  } else {
    resize_at_once(packed, out, floats(std::move(rows)), floats(std::move(cols)));
  }
  return out;
}

Image resize(const Image& image, int64_t height, int64_t width, const Resampling& how) {
  if (image.height() == height && image.width() == width) return image;
  return resize(image, height, width, how, 0, 0, static_cast<double>(image.height()), static_cast<double>(image.width()));
}

}  // namespace npu_train
