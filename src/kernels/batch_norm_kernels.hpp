// Loops of batch_norm.cpp over plain memory, one thread each; it cuts the work and combines. Every instruction set gives the same bits.
#pragma once

#include <cstdint>

#include "npu_train/kernels/rounding.hpp"

namespace npu_train::detail {

// T is how maps are stored: float, c10::BFloat16 or c10::Half; what is computed is float, what is stored is rounded once.
//
// Two memory layouts. Rows: `rows` times `channels` values, one for each channel in a row (channels_last). Planes: of one channel, `planes`
// runs of `length` values that begin `stride` apart (contiguous). Absent tensors are null.
struct NormRows {
  int64_t rows, channels;
};
struct NormPlanes {
  int64_t planes, length, stride;
};

// Per channel: y = (x - mean) * scale + bias.
struct NormAffine {
  const float *mean, *scale, *bias;
};

// Per channel: dx = g * scale - (x - mean) * p - q.
struct NormSlopes {
  const float *p, *q;
};

// What comes into the backward pass. g = dy where the result was above 0: by y, or where that is absent by the normalised x; g = dy
// without ReLU.
template <class T>
struct NormGrad {
  const T *x, *dy, *y;
  bool relu;
};

template <class T>
struct NormKernels {
  // Mean and sum of squared deviations of each channel.
  void (*rows_moments)(NormRows n, const T* x, double* mean, double* m2);
  void (*planes_moments)(NormPlanes n, const T* x, double* mean, double* m2);
  void (*rows_apply)(NormRows n, const T* x, const T* residual, NormAffine affine, bool relu, T* y);
  void (*planes_apply)(NormPlanes n, const T* x, const T* residual, NormAffine affine, bool relu, T* y);
  // Adds per channel the sums of g and of g * (x - mean). g is written to `masked` if that is present (with y only).
  void (*rows_sums)(NormRows n, NormGrad<T> in, NormAffine affine, T* masked, double* g, double* gx);
  void (*planes_sums)(NormPlanes n, NormGrad<T> in, NormAffine affine, T* masked, double* g, double* gx);
  void (*rows_gradient)(NormRows n, NormGrad<T> in, NormAffine affine, NormSlopes slopes, T* dx);
  void (*planes_gradient)(NormPlanes n, NormGrad<T> in, NormAffine affine, NormSlopes slopes, T* dx);
};

// The set for this machine.
template <class T>
const NormKernels<T>& norm_kernels();

}  // namespace npu_train::detail
