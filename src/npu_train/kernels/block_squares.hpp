/// The sum of squares of tensors. Its bits depend only on the numbers, not on the number of threads, the instruction set, or the order and
/// grouping of tensors. Gradients therefore have the same norm in one process and in shards.
///
/// Each tensor is divided into blocks of 64 numbers; the last one is padded with zeros. Squares are rounded to fp64 (exact for fp32, fp16
/// and bf16) and added within a block in a fixed order: square i and square i + 32, then sums i and i + 16 of the 32 sums, and so on down
/// to one. Block sums are added without rounding (ExactSum). A block of fp64 numbers whose sum is not between 2^-900 and the largest fp64
/// number is scaled by a power of two according to its largest number, so that squares neither overflow nor vanish.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "npu_train/core/exact_sum.hpp"

namespace npu_train {

/// Size of a block, within which squares are added in fp64.
inline constexpr int64_t kSquaresBlock = 64;

/// Returns the sum of squares over all tensors; each tensor starts a new block. Tensors must be contiguous, on the CPU, and in fp64, fp32,
/// fp16 or bf16; Error(Usage) otherwise.
ExactSum sum_of_squares(const std::vector<at::Tensor>& tensors);

}  // namespace npu_train
