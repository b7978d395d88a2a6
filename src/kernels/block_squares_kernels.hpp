// Single-threaded sums of squares of blocks. All instruction sets give the same bits.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace npu_train::detail {

// Each kernel sets sums[b] to the sum of the squares of x[64 b] ... x[64 b + 63], in the order that kernels/block_squares.hpp defines.
struct SquareKernels {
  void (*of_float)(const float* x, int64_t blocks, double* sums);
  void (*of_bfloat16)(const c10::BFloat16* x, int64_t blocks, double* sums);
  void (*of_half)(const c10::Half* x, int64_t blocks, double* sums);
  void (*of_double)(const double* x, int64_t blocks, double* sums);

  void operator()(const float* x, int64_t blocks, double* sums) const { of_float(x, blocks, sums); }
  void operator()(const c10::BFloat16* x, int64_t blocks, double* sums) const { of_bfloat16(x, blocks, sums); }
  void operator()(const c10::Half* x, int64_t blocks, double* sums) const { of_half(x, blocks, sums); }
  void operator()(const double* x, int64_t blocks, double* sums) const { of_double(x, blocks, sums); }
};

// Returns the kernels for this machine.
const SquareKernels& square_kernels();

}  // namespace npu_train::detail
