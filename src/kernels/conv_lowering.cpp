#include "kernels/conv_lowering.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace npu_train::detail {
namespace {

// Returns a view [N, H, W, C] of a tensor [N, C, H, W] that is stored as [N, H, W, C].
at::Tensor pixels_first(const at::Tensor& t) { return t.permute({0, 2, 3, 1}); }
// Returns a view [N, C, H, W] of a tensor [N, H, W, C].
at::Tensor channels_second(const at::Tensor& t) { return t.permute({0, 3, 1, 2}); }

at::Tensor as_matrix(const at::Tensor& t) { return pixels_first(t).reshape({-1, t.size(1)}); }
at::Tensor as_map(const at::Tensor& matrix, int64_t batch, int64_t height, int64_t width) {
  return channels_second(matrix.view({batch, height, width, -1}));
}

void copy(float* to, const float* from, int64_t count) { std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float)); }
void clear(float* to, int64_t count) { std::memset(to, 0, static_cast<size_t>(count) * sizeof(float)); }

}  // namespace

ConvShape::ConvShape(const at::Tensor& x, const at::Tensor& weight, int64_t conv_stride, int64_t conv_padding)
    : batch(x.size(0)),
      in_channels(x.size(1)),
      height(x.size(2)),
      width(x.size(3)),
      out_channels(weight.size(0)),
      kernel(weight.size(2)),
      stride(conv_stride),
      padding(conv_padding),
      out_height((height + 2 * padding - kernel) / stride + 1),
      out_width((width + 2 * padding - kernel) / stride + 1) {}

namespace pointwise {
namespace {

// Returns the pixels at multiples of the stride: [N, out_height, out_width, C].
at::Tensor met(const ConvShape& s, const at::Tensor& t) {
  return pixels_first(t).slice(1, 0, s.height, s.stride).slice(2, 0, s.width, s.stride);
}
at::Tensor rows(const ConvShape& s, const at::Tensor& x) { return met(s, x).reshape({-1, s.in_channels}); }
at::Tensor matrix(const at::Tensor& weight) { return weight.reshape({weight.size(0), weight.size(1)}); }

}  // namespace

at::Tensor forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& weight) {
  return as_map(at::mm(rows(s, x), matrix(weight).t()), s.batch, s.out_height, s.out_width);
}

at::Tensor input_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor at_met = at::mm(as_matrix(dy), matrix(weight));
  if (s.stride == 1) return as_map(at_met, s.batch, s.height, s.width);
  at::Tensor dx = channels_second(at::zeros({s.batch, s.height, s.width, s.in_channels}, dy.options()));
  met(s, dx).copy_(at_met.view({s.batch, s.out_height, s.out_width, s.in_channels}));
  return dx;
}

at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x) {
  return at::mm(as_matrix(dy).t(), rows(s, x)).view({s.out_channels, s.in_channels, 1, 1});
}

}  // namespace pointwise

namespace dense {
namespace {

// Returns the kernel tap that connects input pixel q to output pixel p, or -1.
int64_t tap(const ConvShape& s, int64_t p, int64_t q) {
  const int64_t ky = q / s.width - p / s.out_width * s.stride + s.padding, kx = q % s.width - p % s.out_width * s.stride + s.padding;
  return ky >= 0 && ky < s.kernel && kx >= 0 && kx < s.kernel ? ky * s.kernel + kx : -1;
}

// Returns the weights of the fully connected layer, [out_pixels * K, in_pixels * C].
at::Tensor unrolled(const ConvShape& s, const at::Tensor& weight) {
  at::Tensor full = at::empty({s.out_pixels() * s.out_channels, s.in_pixels() * s.in_channels}, weight.options());
  const float* from = weight.const_data_ptr<float>();
  float* to = full.data_ptr<float>();
  const int64_t c = s.in_channels;
  at::parallel_for(0, full.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t p = row / s.out_channels, k = row % s.out_channels;
      for (int64_t q = 0; q < s.in_pixels(); ++q) {
        const int64_t t = tap(s, p, q);
        float* cell = to + (row * s.in_pixels() + q) * c;
        t < 0 ? clear(cell, c) : copy(cell, from + (k * s.taps() + t) * c, c);
      }
    }
  });
  return full;
}

at::Tensor per_image(const at::Tensor& t) { return pixels_first(t).reshape({t.size(0), -1}); }

}  // namespace

at::Tensor forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& weight) {
  return as_map(at::mm(per_image(x), unrolled(s, weight).t()), s.batch, s.out_height, s.out_width);
}

at::Tensor input_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& weight) {
  return as_map(at::mm(per_image(dy), unrolled(s, weight)), s.batch, s.height, s.width);
}

}  // namespace dense

namespace taps {
namespace {

// Pixels along one axis that tap `i` connects: `count` outputs from `out` on, and as many inputs from `in` on, spaced by the stride.
struct Joined {
  int64_t out, in, count;
};
Joined joined(const ConvShape& s, int64_t i, int64_t out_size, int64_t in_size) {
  const int64_t first = std::max<int64_t>(0, (s.padding - i + s.stride - 1) / s.stride);
  const int64_t reach = in_size - 1 + s.padding - i;
  const int64_t last = reach < 0 ? -1 : std::min(out_size - 1, reach / s.stride);
  return {first, first * s.stride - s.padding + i, std::max<int64_t>(0, last - first + 1)};
}

// Returns [pixels, C] of a map: `y.count` rows from `row` on and `x.count` columns from `column` on, spaced by `step`.
at::Tensor pixels(const at::Tensor& map, int64_t row, int64_t column, const Joined& y, const Joined& x, int64_t step) {
  const auto end = [step](int64_t start, int64_t count) { return start + (count - 1) * step + 1; };
  return pixels_first(map).slice(1, row, end(row, y.count), step).slice(2, column, end(column, x.count), step).reshape({-1, map.size(1)});
}

}  // namespace

at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor dw = at::zeros({s.out_channels, s.kernel, s.kernel, s.in_channels}, dy.options());
  for (int64_t ky = 0; ky < s.kernel; ++ky) {
    const auto rows = joined(s, ky, s.out_height, s.height);
    for (int64_t kx = 0; kx < s.kernel; ++kx) {
      const auto columns = joined(s, kx, s.out_width, s.width);
      if (rows.count == 0 || columns.count == 0) continue;
      const at::Tensor up = pixels(dy, rows.out, columns.out, rows, columns, 1);
      const at::Tensor met = pixels(x, rows.in, columns.in, rows, columns, s.stride);
      dw.select(1, ky).select(1, kx).copy_(at::mm(up.t(), met));
    }
  }
  return channels_second(dw);
}

}  // namespace taps

namespace patches {
namespace {

// Fills `to` ([k, k, C]) with the inputs of output pixel `row`, and with zeros for the padding.
void fill_patch(const ConvShape& s, const float* x, int64_t row, float* to) {
  const int64_t c = s.in_channels, run = s.kernel * c;
  const int64_t image = row / s.out_pixels(), p = row % s.out_pixels();
  const int64_t top = p / s.out_width * s.stride - s.padding, left = p % s.out_width * s.stride - s.padding;
  const int64_t first = std::clamp<int64_t>(-left, 0, s.kernel), last = std::clamp<int64_t>(s.width - left, first, s.kernel);
  for (int64_t ky = 0; ky < s.kernel; ++ky, to += run) {
    const int64_t y = top + ky;
    if (y < 0 || y >= s.height || first == last) {
      clear(to, run);
      continue;
    }
    clear(to, first * c);
    copy(to + first * c, x + ((image * s.height + y) * s.width + left + first) * c, (last - first) * c);
    clear(to + last * c, run - last * c);
  }
}

}  // namespace

at::Tensor weight_gradient(const ConvShape& s, const at::Tensor& dy, const at::Tensor& x) {
  constexpr int64_t kBlockFloats = 1 << 20;  // a block stays in the last-level cache between filling and product
  constexpr int64_t kLeastRows = 512;        // with fewer rows, adding to the result costs more than the product
  const int64_t rows = s.batch * s.out_pixels(), columns = s.taps() * s.in_channels;
  const int64_t block = std::min(rows, std::max(kLeastRows, kBlockFloats / columns));
  const at::Tensor up = as_matrix(dy), buffer = at::empty({block, columns}, dy.options());
  at::Tensor dw = at::zeros({s.out_channels, columns}, dy.options());
  const float* from = x.const_data_ptr<float>();
  float* to = buffer.data_ptr<float>();
  for (int64_t start = 0; start < rows; start += block) {
    const int64_t count = std::min(block, rows - start);
    at::parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) fill_patch(s, from, start + r, to + r * columns);
    });
    at::addmm_out(dw, dw, up.narrow(0, start, count).t(), buffer.narrow(0, 0, count));
  }
  return channels_second(dw.view({s.out_channels, s.kernel, s.kernel, s.in_channels}));
}

}  // namespace patches
}  // namespace npu_train::detail
