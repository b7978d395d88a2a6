// Sums over a tensor whose parts may be on several ranks and in several micro-batches. The bits of the sums do not depend on this
// distribution.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "npu_train/core/exact_sum.hpp"

namespace npu_train::detail {

// Within a block of 64 values, the values are added in fp64; the sums of the blocks are added without rounding. A slice of a parameter
// begins at a block, so the slices of all ranks together have the blocks of the complete parameter.
struct Moments {
  ExactSum sum, squares;
  double max = -std::numeric_limits<double>::infinity(), min = std::numeric_limits<double>::infinity();  // both ignore NaN
  int64_t count = 0, zeros = 0, nans = 0, infs = 0;

  void join(const Moments& other);
  // The following four are NaN if a value is NaN, or if there are no values.
  double norm() const;
  double mean() const;
  double highest() const;
  double lowest() const;
  // Returns the standard deviation with the divisor `count`; 0 if it is below the rounding of fp64.
  double deviation() const;
  double zero_share() const;
};

// Returns the sums of a CPU tensor of any dtype, in the order of its memory; complex values are replaced by their magnitude. Uses all
// threads.
Moments moments_of(const at::Tensor& t);

// Returns the statistics of a tensor on another device as fp32 [8] on that device, without a read by the host; moments_of_row() reads such
// a row in host memory. The sums and the deviation have the precision of fp32.
at::Tensor moments_row(const at::Tensor& t);
Moments moments_of_row(const at::Tensor& row_on_host, int64_t count);

// Returns text without blanks that moments_of_text() reads without loss.
std::string to_text(const Moments& moments);
Moments moments_of_text(std::string_view text);

}  // namespace npu_train::detail
