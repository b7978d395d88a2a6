/// The squared norm of gradients in the form in which threads, tensors and ranks add it: without rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "npu_train/core/exact_sum.hpp"

namespace npu_train {

/// Where several ranks have a part of the gradients each, the parts of all are the elementwise sum of theirs.
struct SquaredNorm {
  /// On the gradients' device: int64 [ExactSum::kLimbs], the limbs of the sum of squares. On a device without fp64: [1], that sum itself in
  /// fp32, rounded. Undefined: no norm is needed.
  at::Tensor parts{};
  at::ScalarType dtype = at::kFloat;  ///< of the norm
};

/// For tensors that are sharded over ranks: gets SquaredNorm::parts of this rank and adds to them those of the other ranks, in place. The
/// identity by default.
using NormReduction = std::function<void(at::Tensor& value)>;

/// The norm, a scalar of `dtype` on the device of `parts`. On the CPU the root of the exact sum, rounded to fp64 before and after; on
/// another device norm_by_operators().
at::Tensor norm_of(const SquaredNorm& squares);

/// The norm in fp64 from int64 parts, by operators on their device, which the host does not read: equal sums of parts give equal bits
/// there, and the bits of the CPU up to the last places of fp64. Squares of fp64 overflow.
at::Tensor norm_by_operators(const at::Tensor& parts);

/// SquaredNorm::parts of sums of squares: of one on the host, and of [n] in fp64 on a device, n up to 2^20, which the host does not read.
/// `of_fp64`: whether squares may be outside 2^-320 to 2^288, beyond all squares of fp32; bits below 2^-992 are dropped then.
at::Tensor parts_of(const ExactSum& squares);
at::Tensor parts_of(const at::Tensor& squares, bool of_fp64);

/// Parts as int32 and back, for collectives without int64: the elementwise sum over up to 2^15 ranks is that of all. Parts that are not
/// int64 stay as they are.
at::Tensor int32_parts(const at::Tensor& parts);
at::Tensor from_int32_parts(const at::Tensor& parts);

}  // namespace npu_train
