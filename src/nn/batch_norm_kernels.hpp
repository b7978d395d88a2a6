// Loops of batch_norm_act over plain memory, one thread each; batch_norm_act.cpp cuts the work and combines.
#pragma once

#include <cstdint>

namespace npu_train::detail {

// Two ways to lie. Rows: `rows` times `channels` values, one for each channel in a row (channels_last). Planes: of one channel, `planes`
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
struct NormGrad {
  const float *x, *dy, *y;
  bool relu;
};

struct NormKernels {
  // Mean and sum of squared deviations of each channel.
  void (*rows_moments)(NormRows n, const float* x, double* mean, double* m2);
  void (*planes_moments)(NormPlanes n, const float* x, double* mean, double* m2);
  void (*rows_apply)(NormRows n, const float* x, const float* residual, NormAffine affine, bool relu, float* y);
  void (*planes_apply)(NormPlanes n, const float* x, const float* residual, NormAffine affine, bool relu, float* y);
  // Adds per channel the sums of g and of g * (x - mean). g is written to `masked` if that is present (with y only).
  void (*rows_sums)(NormRows n, NormGrad in, NormAffine affine, float* masked, double* g, double* gx);
  void (*planes_sums)(NormPlanes n, NormGrad in, NormAffine affine, float* masked, double* g, double* gx);
  void (*rows_gradient)(NormRows n, NormGrad in, NormAffine affine, NormSlopes slopes, float* dx);
  void (*planes_gradient)(NormPlanes n, NormGrad in, NormAffine affine, NormSlopes slopes, float* dx);
};

// The set for this machine.
const NormKernels& norm_kernels();

}  // namespace npu_train::detail
