// Results of a unit that accumulates exactly and rounds once: double arithmetic with explicit rounding to bf16 or fp16.
#pragma once

#include "reference/tensor.hpp"

namespace npu_train::reference {

// A binary format: number of bits of the significand without the leading one, least exponent of a normal number, largest number.
struct Format {
  int bits, least_exponent;
  double largest;
};
inline Format format_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? Format{10, -14, 65504.0} : Format{7, -126, std::ldexp(2.0 - std::ldexp(1.0, -7), 127)};
}

// Returns the distance between the numbers of the format around x.
inline double spacing(double x, const Format& f) {
  const int exponent = x == 0 ? f.least_exponent : std::max(std::ilogb(x), f.least_exponent);
  return std::ldexp(1.0, exponent - f.bits);
}

// Rounds to the nearest number of the format, ties to even. Numbers that exceed the largest by at least half a spacing become inf.
inline double nearest(double x, const Format& f) {
  if (!std::isfinite(x)) return x;
  const double step = spacing(x, f), y = std::nearbyint(x / step) * step;
  return std::abs(y) > f.largest ? std::copysign(INFINITY, x) : y;
}

inline Array nearest(Array a, at::ScalarType dtype) {
  for (auto& x : a.v) x = nearest(x, format_of(dtype));
  return a;
}

// Returns the largest distance of `got` from the exact `expected`, in spacings of dtype. A result that was rounded once is within 0.5 plus
// the error of an fp32 sum.
inline double spacings_apart(const at::Tensor& got, const Array& expected, at::ScalarType dtype) {
  const Array g(got);
  if (g.v.size() != expected.v.size()) return INFINITY;
  const Format f = format_of(dtype);
  double largest = 0, worst = 0;
  for (const double x : expected.v) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < g.v.size(); ++i) {
    if (!std::isfinite(g.v[i])) return INFINITY;
    const double fp32_error = 2e-6 * largest;
    const double distance = std::max(0.0, std::abs(g.v[i] - expected.v[i]) - fp32_error);
    worst = std::max(worst, distance / spacing(expected.v[i], f));
  }
  return worst;
}

// A convolution in three dimensions; sizes of 1 reduce it to two or one. For a transposed convolution, x and y change places.
struct Conv3d {
  std::vector<int64_t> stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  int64_t groups = 1;

  // Calls fn(index of y, index of x, index of w) for every product of y += x w. `x` and `y` are [N, C, ...]; w is [K, C / groups, ...].
  template <class Fn>
  void for_products(const std::vector<int64_t>& y, const std::vector<int64_t>& x, const std::vector<int64_t>& w, Fn fn) const {
    const int64_t per_group = w[0] / groups;
    std::vector<int64_t> o(5), k(5);
    const auto each = [](const std::vector<int64_t>& shape, std::vector<int64_t>& at, auto body) {
      for (at[0] = 0; at[0] < shape[0]; ++at[0])
        for (at[1] = 0; at[1] < shape[1]; ++at[1])
          for (at[2] = 0; at[2] < shape[2]; ++at[2])
            for (at[3] = 0; at[3] < shape[3]; ++at[3])
              for (at[4] = 0; at[4] < shape[4]; ++at[4]) body();
    };
    const auto flat = [](const std::vector<int64_t>& shape, const std::vector<int64_t>& at) {
      int64_t out = 0;
      for (size_t d = 0; d < 5; ++d) out = out * shape[d] + at[d];
      return out;
    };
    const std::vector<int64_t> taps = {1, w[1], w[2], w[3], w[4]};
    each(y, o, [&] {
      each(taps, k, [&] {
        std::vector<int64_t> i = {o[0], o[1] / per_group * w[1] + k[1], 0, 0, 0};
        for (size_t d = 0; d < 3; ++d) {
          i[d + 2] = o[d + 2] * stride[d] + k[d + 2] * dilation[d] - padding[d];
          if (i[d + 2] < 0 || i[d + 2] >= x[d + 2]) return;
        }
        fn(flat(y, o), flat(x, i), flat(w, {o[1], k[1], k[2], k[3], k[4]}));
      });
    });
  }
};

}  // namespace npu_train::reference
