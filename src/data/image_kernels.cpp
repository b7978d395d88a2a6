#include "data/image_kernels.hpp"

#include <algorithm>
#include <cstring>

#include "data/simd.hpp"

namespace npu_train::detail {
namespace {

NPU_TRAIN_SIMD void sum_rows(const uint8_t* src, int64_t row_bytes, int64_t n, const float* weights, int64_t count, float* out) {
  constexpr int kTile = 32;
  int64_t x = 0;
  for (; x + kTile <= n; x += kTile) {
    float sum[kTile] = {};
    for (int64_t k = 0; k < count; ++k) {
      const uint8_t* line = src + k * row_bytes + x;
      const float weight = weights[k];
      for (int i = 0; i < kTile; ++i) sum[i] += weight * static_cast<float>(line[i]);
    }
    for (int i = 0; i < kTile; ++i) out[x + i] = sum[i];
  }
  for (; x < n; ++x) {
    float sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += weights[k] * static_cast<float>(src[k * row_bytes + x]);
    out[x] = sum;
  }
}

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint8_t Byte4 __attribute__((vector_size(4)));

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

NPU_TRAIN_SIMD void unpack_one(const uint8_t* packed, int64_t n, uint8_t* plane) {
  for (int64_t x = 0; x < n; ++x) plane[x] = packed[x * 4];
}

void unpack(const uint8_t* packed, int64_t n, int64_t channels, uint8_t* planes, int64_t plane_stride) {
  for (int64_t c = 0; c < channels; ++c) unpack_one(packed + c, n, planes + c * plane_stride);
}

NPU_TRAIN_SIMD void to_floats(const uint8_t* src, int64_t n, float scale, float shift, float* dst) {
  for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<float>(src[i]) * scale + shift;
}

NPU_TRAIN_SIMD void to_floats_backward(const uint8_t* src, int64_t n, float scale, float shift, float* dst) {
  const uint8_t* first = src - (n - 1);
  for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<float>(first[n - 1 - i]) * scale + shift;
}

inline uint8_t to_byte(float value) { return static_cast<uint8_t>(static_cast<int32_t>(std::min(std::max(value, 0.0f), 255.0f))); }

NPU_TRAIN_SIMD void blend_with_constant(uint8_t* p, int64_t n, float constant, float factor) {
  for (int64_t i = 0; i < n; ++i) p[i] = to_byte(constant + factor * (static_cast<float>(p[i]) - constant));
}

NPU_TRAIN_SIMD void blend_with_gray(uint8_t* __restrict__ r, uint8_t* __restrict__ g, uint8_t* __restrict__ b, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t red = r[i], green = g[i], blue = b[i];
    const auto gray = static_cast<float>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
    r[i] = to_byte(gray + factor * (static_cast<float>(red) - gray));
    g[i] = to_byte(gray + factor * (static_cast<float>(green) - gray));
    b[i] = to_byte(gray + factor * (static_cast<float>(blue) - gray));
  }
}

NPU_TRAIN_SIMD int32_t sum_of_luma(const uint8_t* r, const uint8_t* g, const uint8_t* b, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (r[i] * 19595 + g[i] * 38470 + b[i] * 7471 + 0x8000) >> 16;
  return sum;
}

/// The distance of a channel below the brightest, 0 to 1, at `turn6` sixths of the circle (positive, any number of turns).
inline float hue_depth(float turn6) {
  const float k = turn6 - 6.0f * static_cast<float>(static_cast<int32_t>(turn6 * (1.0f / 6.0f)));
  return std::max(0.0f, std::min(std::min(k, 4.0f - k), 1.0f));
}

/// All choices are among integers and all arithmetic is done for every pixel: otherwise compilers leave the loop scalar, since a float
/// operation that is only sometimes done might trap.
NPU_TRAIN_SIMD void turn_hue(uint8_t* __restrict__ rp, uint8_t* __restrict__ gp, uint8_t* __restrict__ bp, int64_t n, float shift6) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t r = rp[i], g = gp[i], b = bp[i];
    const int32_t high = std::max(r, std::max(g, b));
    const int32_t chroma = high - std::min(r, std::min(g, b));
    const int32_t rise = high == r ? g - b : (high == g ? b - r : r - g);
    const int32_t sector = high == r ? 0 : (high == g ? 2 : 4);
    // One turn more, so that it stays positive.
    const float hue = static_cast<float>(rise) / static_cast<float>(std::max(chroma, 1)) + static_cast<float>(sector) + shift6 + 6.0f;
    const auto top = static_cast<float>(high) + 0.5f, depth = static_cast<float>(chroma);
    rp[i] = static_cast<uint8_t>(static_cast<int32_t>(top - depth * hue_depth(hue + 5.0f)));
    gp[i] = static_cast<uint8_t>(static_cast<int32_t>(top - depth * hue_depth(hue + 3.0f)));
    bp[i] = static_cast<uint8_t>(static_cast<int32_t>(top - depth * hue_depth(hue + 1.0f)));
  }
}

NPU_TRAIN_SIMD void add_weighted(const float* src, int64_t n, float weight, float* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += weight * src[i];
}

NPU_TRAIN_SIMD void round_row(const float* sum, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(static_cast<int32_t>(std::min(sum[i] + 0.5f, 255.0f)));
}

NPU_TRAIN_SIMD void map_row(int32_t x_start, int32_t y_start, int32_t dx, int32_t dy, int bits, int64_t n, int32_t width, int32_t height,
                            int32_t* index) {
  for (int32_t i = 0; i < static_cast<int32_t>(n); ++i) {
    const int32_t x = (x_start + dx * i) >> bits, y = (y_start + dy * i) >> bits;
    const bool inside = static_cast<uint32_t>(x) < static_cast<uint32_t>(width) && static_cast<uint32_t>(y) < static_cast<uint32_t>(height);
    index[i] = inside ? y * width + x : -1;
  }
}

constexpr ImageKernels kKernels = {sum_rows,        sum_columns, unpack,   to_floats,    to_floats_backward, blend_with_constant,
                                   blend_with_gray, sum_of_luma, turn_hue, add_weighted, round_row,          map_row};

}  // namespace

const ImageKernels& image_kernels() { return kKernels; }

}  // namespace npu_train::detail
