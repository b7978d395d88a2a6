/// Batch normalisation, residual addition and ReLU as one operation, in training and in evaluation.
///
/// y = act(weight * (x - mean) / sqrt(var + eps) + bias + residual), the pattern of every residual network (Ioffe & Szegedy 2015; He et al.
/// 2016). PyTorch runs it as three operations, each with a pass over memory. Here the forward reads x twice and writes y once; the backward
/// reads x and the gradient twice (with a residual, also y once) and writes the requested gradients. Saved for the backward are x, two
/// numbers per channel and, with a residual and a ReLU, y (neighbouring operations keep x and y alive anyway).
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/kernels/batch_norm.hpp"

namespace npu_train {

/// Returns relu?(batch_norm(x) + residual?) for x [N, C, ...] of any layout, in the layout of x. `residual` is undefined or has the sizes
/// of x. Both stay unchanged. The caller updates `num_batches_tracked`.
///
/// The one-pass kernels run on the CPU for x in fp32, bf16 or fp16 with fp32 parameters, in contiguous, channels_last and [N, C] layout;
/// they compute in fp32 and round stored values once. Other cases (other devices and types, another type of residual, missing weight or
/// bias, evaluation with gradients) use at::batch_norm, add and relu with the same meaning. Statistics are exact to float rounding (two
/// passes over cached blocks, combined in double; Chan et al. 1979) and independent of the number of threads. As in PyTorch, NaN stays NaN
/// through the ReLU, and the ReLU passes the gradient where the result is above 0.
///
/// Error(Usage) for sizes that do not match, for training on one value per channel, and for double backward (create_graph).
at::Tensor batch_norm_act(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual = {}, bool relu = true);

}  // namespace npu_train
