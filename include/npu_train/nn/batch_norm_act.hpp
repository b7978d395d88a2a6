/// Batch normalisation, residual addition and ReLU as one operation, in training and in evaluation.
///
/// y = act(weight * (x - mean) / sqrt(var + eps) + bias + residual), the pattern of every residual network (Ioffe & Szegedy 2015;
/// He et al. 2016). PyTorch runs it as three operations, each a trip through memory; here the forward reads x twice and writes y once,
/// the backward reads x and the gradient twice (with a residual y once) and writes the requested gradients. Kept for the backward: x, with
/// a residual and ReLU also y (both are alive anyway: one in this operation, one in the next), and two numbers per channel.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/kernels/batch_norm.hpp"

namespace npu_train {

/// relu?(batch_norm(x) + residual?) for x [N, C, ...] of any layout; the result has the layout of x. `residual` is undefined for none,
/// else of x's sizes. Neither is changed. `num_batches_tracked` is the caller's.
///
/// The one-pass kernels run on the CPU for x in fp32, bf16 or fp16 with fp32 parameters, in contiguous, channels_last and [N, C] layout;
/// they compute in fp32 and round what they store once. Everything else (other devices and types, another type of residual, missing weight
/// or bias, evaluation with gradients) is computed by at::batch_norm, add and relu with the same
/// meaning. Statistics are exact to float rounding (two passes over cached blocks, combined in double; Chan et al. 1979), and do not
/// depend on the number of threads. As in PyTorch NaN stays NaN through ReLU and the gradient passes where the result is above 0.
///
/// Throws Error(Usage) for sizes that do not fit, for training on one value per channel, and from a backward pass with create_graph
/// (double backward).
at::Tensor batch_norm_act(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual = {}, bool relu = true);

}  // namespace npu_train
