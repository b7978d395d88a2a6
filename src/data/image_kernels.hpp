// Loops over the pixels of a row, one thread each. Every instruction set gives the same bits: no result depends on how many values are
// computed together, and no multiply-add is fused.
#pragma once

#include <cstdint>

namespace npu_train::detail {

constexpr int kWeightBits = 22;  // so that 255 times a cubic's weights fits 32 bits

struct ImageKernels {
  // Resizing. One row of n floats: the weighted sum of `count` rows of bytes.
  void (*sum_rows)(const uint8_t* src, int64_t row_bytes, int64_t n, const float* weights, int64_t count, float* out);
  // One row of n packed pixels from packed floats: each the weighted sum of `count` pixels from `first` on, by its own `stride` weights. No
  // value leaves 0..255: the weights are positive and add up to one.
  void (*sum_columns)(const float* src, const int32_t* first, const int32_t* count, const float* weights, int64_t stride, int64_t n,
                      uint8_t* out);
  // The same from and to bytes, by weights of kWeightBits bits after the point, rounded to the nearest and cut to a byte.
  void (*round_columns)(const uint8_t* src, const int32_t* first, const int32_t* count, const int32_t* weights, int64_t stride, int64_t n,
                        uint8_t* out);
  void (*round_rows)(const uint8_t* src, int64_t row_bytes, int64_t n, const int32_t* weights, int64_t count, uint8_t* out);
  // The first `channels` bytes of n packed pixels, each to a plane of its own.
  void (*unpack)(const uint8_t* packed, int64_t n, int64_t channels, uint8_t* planes, int64_t plane_stride);

  // Normalising: value * scale + shift. The second one reads src[0], src[-1], ...
  void (*to_floats)(const uint8_t* src, int64_t n, float scale, float shift, float* dst);
  void (*to_floats_backward)(const uint8_t* src, int64_t n, float scale, float shift, float* dst);

  // Colour, in place. degenerate + factor * (value - degenerate), cut to a byte: with a constant, and with each pixel's luma.
  void (*blend_with_constant)(uint8_t* p, int64_t n, float constant, float factor);
  void (*blend_with_gray)(uint8_t* r, uint8_t* g, uint8_t* b, int64_t n, float factor);
  // At most 2^23 pixels.
  int32_t (*sum_of_luma)(const uint8_t* r, const uint8_t* g, const uint8_t* b, int64_t n);
  // By sixths of a turn, from -6 on.
  void (*turn_hue)(uint8_t* r, uint8_t* g, uint8_t* b, int64_t n, float shift6);

  // Blurring. As sum_rows, of rows of floats; then n floats, none of them negative, to the nearest bytes.
  void (*sum_float_rows)(const float* const* rows, int64_t n, const float* weights, int64_t count, float* out);
  void (*round_row)(const float* sum, int64_t n, uint8_t* out);

  // Which source pixel each of n pixels looks at, -1 outside; positions in fixed point with `bits` after the point.
  void (*map_row)(int32_t x_start, int32_t y_start, int32_t dx, int32_t dy, int bits, int64_t n, int32_t width, int32_t height,
                  int32_t* index);
};

// The set for this machine.
const ImageKernels& image_kernels();

}  // namespace npu_train::detail
