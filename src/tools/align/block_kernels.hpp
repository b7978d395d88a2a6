// Single-threaded sums over blocks of plain memory: of the values of one tensor, and of the differences of a pair.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace npu_train::detail {

// Values per call: two blocks and their widened copies fit into the first-level cache.
constexpr int64_t kBlock = 2048;

// Sums from which the statistics of one tensor are computed. `max` and `min` ignore NaN; `sum` and `squares` do not.
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

// Further sums that the metrics of a pair need. All values must be finite.
struct ErrorSums {
  double dot = 0, squares = 0, abs = 0;  // sums of ab, (a - b)^2, |a - b|
  double max_abs = 0, max_relative = 0;
  int64_t one_thousandth = 0, five_thousandth = 0;  // numbers of relative errors below 0.001 and 0.005
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

// Size of the blocks whose sums are added without rounding. Slices of parameters begin at multiples of it.
constexpr int64_t kSumBlock = 64;

// The extremes of values, and the number of zeros. `max` and `min` ignore NaN.
struct Extremes {
  double max = -std::numeric_limits<double>::infinity(), min = std::numeric_limits<double>::infinity();
  int64_t zeros = 0;
};

// T is the type to which values are widened: float for float32, bfloat16 and float16, double for any real dtype. Products and sums are
// computed in double, so products of floats are exact before they are added, and cannot overflow.
template <class T>
struct BlockKernels {
  // Returns the `n` values of `dtype` at `data` as T: converted into `buffer`, or in place if they are already aligned values of T. `data`
  // needs no alignment.
  const T* (*widened)(at::ScalarType dtype, const void* data, int64_t n, T* buffer);
  ValueSums (*values)(const T* x, int64_t n);
  // Sums over a pair of blocks. `epsilon` replaces the divisor where b is 0. ULPs are counted in the dtype `grid`; if `grid` is not a
  // floating dtype, no ULPs are counted.
  ErrorSums (*errors)(const T* a, const T* b, int64_t n, double epsilon, at::ScalarType grid);
  // Writes the sum and the sum of squares of each block of kSumBlock values; at most kBlock values per call.
  Extremes (*moments)(const T* x, int64_t blocks, double* sums, double* squares);
};

// Returns the kernels for this machine. Their results are bit-equal for all instruction sets.
template <class T>
const BlockKernels<T>& block_kernels();

// Whether `widened` of BlockKernels<float> or BlockKernels<double> supports the dtype. The latter supports all real dtypes of NumPy, and
// bfloat16.
bool widens_to_float(at::ScalarType dtype);
bool widens_to_double(at::ScalarType dtype);

}  // namespace npu_train::detail
