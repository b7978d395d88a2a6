// Sums over blocks of plain memory, one thread each: of one tensor's values and of a pair's differences.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace npu_train::detail {

// Values that one call takes: two such blocks and their widened copies stay in the first-level cache.
constexpr int64_t kBlock = 2048;

// What one tensor's statistics are made of. max and min pass over NaN; sum and squares do not.
struct ValueSums {
  double sum = 0, squares = 0;
  double max = -std::numeric_limits<double>::infinity(), min = std::numeric_limits<double>::infinity();
  int64_t nan = 0, inf = 0;

  void join(const ValueSums& later) {
    sum += later.sum;
    squares += later.squares;
    max = std::max(max, later.max);
    min = std::min(min, later.min);
    nan += later.nan;
    inf += later.inf;
  }
};

// The other sums of the metrics of a pair, if all values are finite.
struct ErrorSums {
  double dot = 0, squares = 0, abs = 0;  // sums of ab, (a - b)^2, |a - b|
  double max_abs = 0, max_relative = 0;
  int64_t one_thousandth = 0, five_thousandth = 0;  // relative errors below
  double ulp = 0, max_ulp = 0;

  void join(const ErrorSums& later) {
    dot += later.dot;
    squares += later.squares;
    abs += later.abs;
    max_abs = std::max(max_abs, later.max_abs);
    max_relative = std::max(max_relative, later.max_relative);
    one_thousandth += later.one_thousandth;
    five_thousandth += later.five_thousandth;
    ulp += later.ulp;
    max_ulp = std::max(max_ulp, later.max_ulp);
  }
};

// T is what values are widened to: float for float32, bfloat16 and float16, double for every real dtype. Products and sums are of
// doubles: those of floats are exact before they are added, and cannot overflow.
template <class T>
struct BlockKernels {
  // `n` values of the dtype at `data`, at any address, as T: in `buffer`, or in place if they are already T.
  const T* (*widened)(at::ScalarType dtype, const void* data, int64_t n, T* buffer);
  ValueSums (*values)(const T* x, int64_t n);
  // `epsilon` is the divisor where b is 0. ULP are those of the floating dtype `grid`; none are counted for another dtype.
  ErrorSums (*errors)(const T* a, const T* b, int64_t n, double epsilon, at::ScalarType grid);
};

// The set for this machine; every set gives the same bits.
template <class T>
const BlockKernels<T>& block_kernels();

// Whether `widened` knows the dtype: all real ones that NumPy has, and bfloat16.
bool widens_to_float(at::ScalarType dtype);
bool widens_to_double(at::ScalarType dtype);

}  // namespace npu_train::detail
