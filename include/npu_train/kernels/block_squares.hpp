/// The sum of squares of tensors, in bits that depend on their numbers alone: not on the number of threads, the instruction set, or the
/// order and grouping of tensors. So gradients have one norm in one process and in shards.
///
/// Numbers are taken in blocks of 64, the last one with zeros after it. Squares are rounded to fp64 (exact for fp32, fp16 and bf16), and
/// those of a block added in a fixed order: number i and number i + 32, then i and i + 16 of the 32 sums, down to one. Block sums are added
/// without rounding (ExactSum). A block of fp64 numbers whose sum is not between 2^-900 and the largest number is first divided by the
/// power of two of its largest number, so that squares neither overflow nor vanish.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "npu_train/core/exact_sum.hpp"

namespace npu_train {

/// Numbers of a block, whose squares are added in fp64.
inline constexpr int64_t kSquaresBlock = 64;

/// The squares of all tensors' numbers; each tensor begins a block. Real, on the CPU, contiguous in the order of the numbers (one
/// dimension, say): fp64, fp32, fp16 or bf16. Error(Usage) otherwise.
ExactSum sum_of_squares(const std::vector<at::Tensor>& tensors);

}  // namespace npu_train
