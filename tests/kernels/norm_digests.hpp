/// Digests of the results of the batch normalisation kernels on fixed numbers: one for the kernels over rows, one for those over planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernel_bits.hpp"
#include "kernels/batch_norm_kernels.hpp"

namespace npu_train::testing {

template <class T>
std::vector<T> draw(Numbers& numbers, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  for (auto& x : out) x = round_to<T>(numbers.next());
  return out;
}

/// Runs all kernels, with and without residual, ReLU and mask, on `channels` channels in memory of `size` values. If `planes` is null, runs
/// the kernels over rows.
template <class T>
void add_case(Digest& digest, const detail::NormKernels<T>& k, detail::NormRows rows, const detail::NormPlanes* planes, int64_t size,
              int64_t channels, uint64_t seed) {
  Numbers numbers(seed);
  const auto x = draw<T>(numbers, size), residual = draw<T>(numbers, size), dy = draw<T>(numbers, size), y = draw<T>(numbers, size);
  const auto mean = draw<float>(numbers, channels), scale = draw<float>(numbers, channels), bias = draw<float>(numbers, channels),
             p = draw<float>(numbers, channels), q = draw<float>(numbers, channels);
  const detail::NormAffine affine{mean.data(), scale.data(), bias.data()};
  const detail::NormSlopes slopes{p.data(), q.data()};
  const std::vector<T> nothing(static_cast<size_t>(size), round_to<T>(0));
  std::vector<double> a(static_cast<size_t>(channels)), b(a);
  planes ? k.planes_moments(*planes, x.data(), a.data(), b.data()) : k.rows_moments(rows, x.data(), a.data(), b.data());
  digest.add(a), digest.add(b);
  for (const bool relu : {false, true})
    for (const T* add : {static_cast<const T*>(nullptr), residual.data()}) {
      auto to = nothing;
      planes ? k.planes_apply(*planes, x.data(), add, affine, relu, to.data()) : k.rows_apply(rows, x.data(), add, affine, relu, to.data());
      digest.add(to);
    }
  for (const int mask : {0, 1, 2, 3}) {  // 0: no mask, 1: a mask by x, 2: by y, 3: by y, and the masked gradient is written
    const detail::NormGrad<T> in{x.data(), dy.data(), mask >= 2 ? y.data() : nullptr, mask > 0};
    auto masked = nothing, dx = nothing;
    T* to = mask == 3 ? masked.data() : nullptr;
    std::vector<double> g(a.size(), 0.5), gx(a.size(), 0.25);
    planes ? k.planes_sums(*planes, in, affine, to, g.data(), gx.data()) : k.rows_sums(rows, in, affine, to, g.data(), gx.data());
    planes ? k.planes_gradient(*planes, in, affine, slopes, dx.data()) : k.rows_gradient(rows, in, affine, slopes, dx.data());
    digest.add(g), digest.add(gx), digest.add(masked), digest.add(dx);
  }
}

/// Returns the digest for row widths at and next to multiples of the numbers of lanes, and of the sizes of blocks and tiles.
template <class T>
uint64_t rows_digest(const detail::NormKernels<T>& k) {
  Digest digest;
  uint64_t seed = 0;
  for (const int64_t channels : {1, 3, 4, 7, 8, 12, 15, 16, 17, 24, 31, 64, 513, 600, 1100})
    for (const int64_t rows : {1, 2, 3, 5, 9, 33, 70}) add_case<T>(digest, k, {rows, channels}, nullptr, rows * channels, channels, ++seed);
  for (const int64_t rows : {4000, 5000}) add_case<T>(digest, k, {rows, 16}, nullptr, rows * 16, 16, ++seed);
  return digest.value();
}

/// Returns the digest for plane lengths at and next to multiples of the numbers of lanes, in one piece and in several.
template <class T>
uint64_t planes_digest(const detail::NormKernels<T>& k) {
  Digest digest;
  uint64_t seed = 0;
  const auto add = [&](int64_t count, int64_t length, int64_t stride) {
    const detail::NormPlanes planes{count, length, stride};
    add_case<T>(digest, k, {}, &planes, count * stride, 1, ++seed);
  };
  for (int64_t length = 1; length <= 70; ++length)
    for (const int64_t count : {1, 3}) add(count, length, length + 3);
  for (const int64_t length : {100, 196, 784, 1000, 1023, 1024, 1025, 1033, 1047, 2100, 3136}) add(2, length, length);
  return digest.value();
}

/// Returns whether the kernels have the recorded bits. These are the bits of earlier versions, whose loops GCC 12 had vectorised for AVX2.
inline bool has_recorded_bits(const detail::NormKernels<float>& k) {
  return rows_digest(k) == 0xb3c681f397aaf0bdULL && planes_digest(k) == 0x576bc86af7598598ULL;
}
inline bool has_recorded_bits(const detail::NormKernels<c10::BFloat16>& k) {
  return rows_digest(k) == 0x0af71d65ddeed957ULL && planes_digest(k) == 0x450bc8af319ce9e6ULL;
}
inline bool has_recorded_bits(const detail::NormKernels<c10::Half>& k) {
  return rows_digest(k) == 0x377b5d79bb8b6329ULL && planes_digest(k) == 0x987b37d71c7e1907ULL;
}

}  // namespace npu_train::testing
