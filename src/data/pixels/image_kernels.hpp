// Single-threaded loops over the pixels of a row. All instruction sets give the same bits: no result depends on how many values are
// computed together, and no multiply-add is fused.
#pragma once

#include <cstdint>

namespace npu_train::detail {

constexpr int kWeightBits = 22;  // so that 255 times the weights of a cubic fits 32 bits

struct ImageKernels {
  // Resizing. Computes one row of n floats: the weighted sum of `count` rows of bytes.
  void (*sum_rows)(const uint8_t* src, int64_t row_bytes, int64_t n, const float* weights, int64_t count, float* out);
  // Computes one row of n packed pixels from packed floats. Pixel x is the weighted sum of count[x] pixels from first[x] on; its weights
  // begin at weights[x * stride]. Results are within 0..255, because the weights are positive and add up to one.
  void (*sum_columns)(const float* src, const int32_t* first, const int32_t* count, const float* weights, int64_t stride, int64_t n,
                      uint8_t* out);
  // Like sum_columns and sum_rows, from bytes to bytes: weights with kWeightBits fractional bits; results are rounded and clamped to a
  // byte.
  void (*round_columns)(const uint8_t* src, const int32_t* first, const int32_t* count, const int32_t* weights, int64_t stride, int64_t n,
                        uint8_t* out);
  void (*round_rows)(const uint8_t* src, int64_t row_bytes, int64_t n, const int32_t* weights, int64_t count, uint8_t* out);
  // Splits the first `channels` bytes of n packed pixels into planes.
  void (*unpack)(const uint8_t* packed, int64_t n, int64_t channels, uint8_t* planes, int64_t plane_stride);

  // Normalisation: value * scale + shift. The backward form reads src[0], src[-1], ...
  void (*to_floats)(const uint8_t* src, int64_t n, float scale, float shift, float* dst);
  void (*to_floats_backward)(const uint8_t* src, int64_t n, float scale, float shift, float* dst);

  // Colour, in place: degenerate + factor * (value - degenerate), clamped to a byte; `degenerate` is a constant, or each pixel's luma.
  void (*blend_with_constant)(uint8_t* p, int64_t n, float constant, float factor);
  void (*blend_with_gray)(uint8_t* r, uint8_t* g, uint8_t* b, int64_t n, float factor);
  // Returns the sum of the luma of n pixels, at most 2^23.
  int32_t (*sum_of_luma)(const uint8_t* r, const uint8_t* g, const uint8_t* b, int64_t n);
  // Shifts the hue by `shift6` sixths of a turn, at least -6.
  void (*turn_hue)(uint8_t* r, uint8_t* g, uint8_t* b, int64_t n, float shift6);

  // Blurring. sum_float_rows is like sum_rows, for rows of floats; round_row rounds n non-negative floats to bytes.
  void (*sum_float_rows)(const float* const* rows, int64_t n, const float* weights, int64_t count, float* out);
  void (*round_row)(const float* sum, int64_t n, uint8_t* out);

  // Computes the source index of each of n pixels, or -1 outside; positions are in fixed point with `bits` fractional bits.
  void (*map_row)(int32_t x_start, int32_t y_start, int32_t dx, int32_t dy, int bits, int64_t n, int32_t width, int32_t height,
                  int32_t* index);
};

// Returns the kernels for this machine.
const ImageKernels& image_kernels();

}  // namespace npu_train::detail
