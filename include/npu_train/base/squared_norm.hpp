/// The squared norm of gradients, as an exact sum: its bits do not depend on the order of threads, tensors and ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "npu_train/core/exact_sum.hpp"

namespace npu_train {

/// The squared norm of gradients. To combine the values of several ranks, each with its own gradients, add their `parts` elementwise.
struct SquaredNorm {
  /// int64 [ExactSum::kLimbs] on the gradients' device: the limbs of the sum of squares. On a device without fp64: fp32 [1], the rounded
  /// sum of squares. Undefined: no norm is needed.
  at::Tensor parts{};
  at::ScalarType dtype = at::kFloat;  ///< dtype of the norm
};

/// Adds the SquaredNorm::parts of the other ranks to those of this rank, in place, for tensors that are sharded over ranks. An empty
/// function adds nothing.
using NormReduction = std::function<void(at::Tensor& value)>;

/// Returns the norm, a scalar of `dtype` on the device of `parts`. The CPU rounds the exact sum to fp64 before it takes the root; other
/// devices with fp64 use norm_by_operators().
at::Tensor norm_of(const SquaredNorm& squares);

/// Returns the norm in fp64 from int64 parts, with operators on their device and without a host read. Equal parts give equal bits on one
/// device; other devices, and the CPU's norm_of(), may differ in the last places of fp64. A sum of squares beyond the range of fp64 gives
/// inf.
at::Tensor norm_by_operators(const at::Tensor& parts);

/// Converts sums of squares to SquaredNorm::parts: one sum on the host, or [n] fp64 sums on a device (n up to 2^20) without a host read.
/// Without `of_fp64`, finite sums must be 0 or between 2^-320 and 2^288; sums for fp32 numbers always are. With `of_fp64`, bits below
/// 2^-992 are dropped.
at::Tensor parts_of(const ExactSum& squares);
at::Tensor parts_of(const at::Tensor& squares, bool of_fp64);

/// Converts parts to int32 and back, for collectives without int64; the int32 parts of up to 2^15 ranks may be added elementwise. Parts
/// that are not int64 stay unchanged.
at::Tensor int32_parts(const at::Tensor& parts);
at::Tensor from_int32_parts(const at::Tensor& parts);

}  // namespace npu_train
