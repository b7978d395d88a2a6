// Single-threaded loops of batch_norm.cpp over plain memory; the caller divides the work and combines results. All instruction sets give
// the same bits.
#pragma once

#include <cstdint>

#include "npu_train/kernels/rounding.hpp"

namespace npu_train::detail {

// T is the storage type: float, c10::BFloat16 or c10::Half; the arithmetic is in float, and stored values are rounded once.
//
// There are two memory layouts. Rows (channels_last): `rows` rows, each with `channels` values, one per channel. Planes (contiguous): a
// single channel has `planes` runs of `length` values, which begin `stride` apart. Absent tensors are null.
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

// Inputs of the backward pass. Without a ReLU, g is dy. With a ReLU, g is dy where the result was above 0, and 0 elsewhere. Whether the
// result was above 0 follows from y or, if y is absent, from the normalised x.
template <class T>
struct NormGrad {
  const T *x, *dy, *y;
  bool relu;
};

template <class T>
struct NormKernels {
  // Compute mean and sum of squared deviations of each channel.
  void (*rows_moments)(NormRows n, const T* x, double* mean, double* m2);
  void (*planes_moments)(NormPlanes n, const T* x, double* mean, double* m2);
  void (*rows_apply)(NormRows n, const T* x, const T* residual, NormAffine affine, bool relu, T* y);
  void (*planes_apply)(NormPlanes n, const T* x, const T* residual, NormAffine affine, bool relu, T* y);
  // For each channel, add the sum of g to `g`, and the sum of g * (x - mean) to `gx`. Write g to `masked` if it is not null; `masked`
  // requires y.
  void (*rows_sums)(NormRows n, NormGrad<T> in, NormAffine affine, T* masked, double* g, double* gx);
  void (*planes_sums)(NormPlanes n, NormGrad<T> in, NormAffine affine, T* masked, double* g, double* gx);
  void (*rows_gradient)(NormRows n, NormGrad<T> in, NormAffine affine, NormSlopes slopes, T* dx);
  void (*planes_gradient)(NormPlanes n, NormGrad<T> in, NormAffine affine, NormSlopes slopes, T* dx);
};

// Returns the kernels for this machine.
template <class T>
const NormKernels<T>& norm_kernels();

}  // namespace npu_train::detail
