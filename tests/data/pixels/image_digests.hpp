/// Digests of the results of the pixel kernels on fixed rows, one for each kind of change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/pixels/image_kernels.hpp"
#include "kernel_bits.hpp"

namespace npu_train::testing {

/// Returns row lengths at and next to multiples of the numbers of vector lanes.
inline std::vector<int64_t> row_lengths() {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= 70; ++n) out.push_back(n);
  out.insert(out.end(), {96, 100, 127, 128, 129, 224, 257, 500});
  return out;
}

/// Returns bytes of which many are 0 or 255, or repeat the one before.
inline std::vector<uint8_t> draw_bytes(Numbers& numbers, int64_t n) {
  std::vector<uint8_t> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t kind = numbers.bits() % 16, value = numbers.bits() >> 8;
    out[i] = static_cast<uint8_t>(kind == 0 ? 0 : kind == 1 ? 255 : kind == 2 && i > 0 ? out[i - 1] : value);
  }
  return out;
}

inline float draw_between(Numbers& numbers, float low, float high) {
  const float part = static_cast<float>(numbers.bits() & 0xffffffU) / 16777215.0F;
  return static_cast<float>(double{low} + double{high - low} * double{part});  // the product is exact, so fusing it changes nothing
}

/// Returns positive weights whose sum is one, up to rounding.
inline std::vector<float> draw_weights(Numbers& numbers, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  float sum = 0;
  for (auto& w : out) sum += w = draw_between(numbers, 0.01F, 1);
  for (auto& w : out) w /= sum;
  return out;
}

inline uint64_t resize_digest(const detail::ImageKernels& k) {
  Digest digest;
  for (const int64_t n : row_lengths()) {
    Numbers numbers(static_cast<uint64_t>(n));
    for (const int64_t count : {1, 2, 3, 7, 20}) {
      const auto src = draw_bytes(numbers, count * (n + 3));
      std::vector<float> line(static_cast<size_t>(n));
      k.sum_rows(src.data(), n + 3, n, draw_weights(numbers, count).data(), count, line.data());
      digest.add(line);
    }
    const int64_t stride = 9, width = 2 * n + stride;
    std::vector<float> line(static_cast<size_t>(4 * width)), weights(static_cast<size_t>(n * stride), -1.0F);
    for (auto& x : line) x = draw_between(numbers, 0, 255);
    std::fill_n(line.begin(), 4 * stride, 255.0F);
    std::vector<int32_t> first(static_cast<size_t>(n)), count(first);
    for (size_t x = 0; x < first.size(); ++x) {
      first[x] = static_cast<int32_t>(2 * x);
      count[x] = static_cast<int32_t>(1 + numbers.bits() % stride);
      const auto drawn = draw_weights(numbers, count[x]);
      std::copy(drawn.begin(), drawn.end(), weights.begin() + static_cast<int64_t>(x) * stride);
    }
    std::vector<uint8_t> pixels(static_cast<size_t>(4 * n));
    k.sum_columns(line.data(), first.data(), count.data(), weights.data(), stride, n, pixels.data());
    digest.add(pixels);
    for (const int64_t channels : {1, 2, 3, 4}) {
      std::vector<uint8_t> planes(static_cast<size_t>(channels * (n + 5)), 7);
      k.unpack(pixels.data(), n, channels, planes.data(), n + 5);
      digest.add(planes);
    }
  }
  return digest.value();
}

inline uint64_t normalise_digest(const detail::ImageKernels& k) {
  Digest digest;
  for (const int64_t n : row_lengths()) {
    Numbers numbers(static_cast<uint64_t>(n));
    const auto src = draw_bytes(numbers, n);
    std::vector<float> forward(static_cast<size_t>(n)), backward(forward);
    const float scale = draw_between(numbers, 0.001F, 0.1F), shift = draw_between(numbers, -3, 3);
    k.to_floats(src.data(), n, scale, shift, forward.data());
    k.to_floats_backward(src.data() + n - 1, n, scale, shift, backward.data());
    digest.add(forward), digest.add(backward);
  }
  return digest.value();
}

inline uint64_t color_digest(const detail::ImageKernels& k) {
  Digest digest;
  for (const int64_t n : row_lengths()) {
    Numbers numbers(static_cast<uint64_t>(n));
    for (const float factor : {0.0F, 1.0F, 0.37F, 1.83F, 4.1F, -0.5F}) {
      auto r = draw_bytes(numbers, n), g = draw_bytes(numbers, n), b = draw_bytes(numbers, n);
      const int32_t luma = k.sum_of_luma(r.data(), g.data(), b.data(), n);
      digest.add(&luma, 1);
      k.blend_with_constant(r.data(), n, draw_between(numbers, 0, 255), factor);
      digest.add(r);
      k.blend_with_gray(r.data(), g.data(), b.data(), n, factor);
      digest.add(r), digest.add(g), digest.add(b);
    }
    for (const float shift6 : {0.0F, 3.0F, -3.0F, 1.0F, draw_between(numbers, -3, 3)}) {
      auto r = draw_bytes(numbers, n), g = draw_bytes(numbers, n), b = draw_bytes(numbers, n);
      for (size_t i = 0; i < r.size(); i += 5) g[i] = r[i];
      for (size_t i = 0; i < r.size(); i += 7) b[i] = g[i];
      k.turn_hue(r.data(), g.data(), b.data(), n, shift6);
      digest.add(r), digest.add(g), digest.add(b);
    }
  }
  return digest.value();
}

inline uint64_t blur_digest(const detail::ImageKernels& k) {
  Digest digest;
  for (const int64_t n : row_lengths()) {
    Numbers numbers(static_cast<uint64_t>(n));
    std::vector<float> src(static_cast<size_t>(n)), sum(src);
    for (auto& x : src) x = draw_between(numbers, 0, 255);
    const std::vector<const float*> rows(5, src.data());
    k.sum_float_rows(rows.data(), n, draw_weights(numbers, 5).data(), 5, sum.data());
    digest.add(sum);
    sum.front() = 254.75F, sum.back() = 256.0F;
    std::vector<uint8_t> out(static_cast<size_t>(n));
    k.round_row(sum.data(), n, out.data());
    digest.add(out);
  }
  return digest.value();
}

inline uint64_t map_digest(const detail::ImageKernels& k) {
  Digest digest;
  for (const int64_t n : row_lengths()) {
    Numbers numbers(static_cast<uint64_t>(n));
    for (const int bits : {16, 12, 3}) {
      const auto width = static_cast<int32_t>(n), height = static_cast<int32_t>(1 + numbers.bits() % 300);
      const auto draw = [&](int32_t from, int32_t to) {
        const int64_t low = int64_t{from} << bits, range = (int64_t{to} - from) << bits;
        return static_cast<int32_t>(low + static_cast<int64_t>(numbers.bits()) % range);
      };
      std::vector<int32_t> index(static_cast<size_t>(n));
      const auto x = draw(-width / 2, width), y = draw(-height / 2, height), dx = draw(-2, 2), dy = draw(-2, 2);
      k.map_row(x, y, dx, dy, bits, n, width, height, index.data());
      digest.add(index);
    }
  }
  return digest.value();
}

/// Returns whether the kernels have the recorded bits. These are the bits of earlier versions, whose loops GCC 12 had vectorised, so that
/// augmented images stay the same.
inline bool has_recorded_bits(const detail::ImageKernels& k) {
  return resize_digest(k) == 0xc56b18a5e8e523b8ULL && normalise_digest(k) == 0xc607aacb2d58e365ULL &&
         color_digest(k) == 0xc884675b35ea74c3ULL && blur_digest(k) == 0xbb76b07c1b7e184aULL && map_digest(k) == 0xac708278bb09ea46ULL;
}

}  // namespace npu_train::testing
