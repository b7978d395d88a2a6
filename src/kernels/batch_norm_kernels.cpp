#include "kernels/batch_norm_kernels.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

// Excludes scalable vectors (SVE, RVV): the kernels keep lanes of sums in arrays of vectors, which need a fixed size.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "kernels/batch_norm_kernels.inc"

namespace npu_train::detail {

// Computes a * b + c, rounded once, without an FMA instruction. The product of two floats is exact in double, and the sum is rounded to odd
// there, so that only the final rounding matters (Boldo & Melquiond 2008).
inline float multiply_add_in_parts(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c), sum = product + addend;
  const double part = sum - product, error = (product - (sum - part)) + (addend - part);
  auto bits = std::bit_cast<int64_t>(sum);
  const bool inexact = error > 0 || error < 0;  // false for NaN: the error is NaN if the sum is infinite
  if (inexact && (bits & 1) == 0) bits += (error > 0) == (bits >= 0) ? 1 : -1;
  return static_cast<float>(std::bit_cast<double>(bits));
}

}  // namespace npu_train::detail

#include <hwy/foreach_target.h>

#include "kernels/batch_norm_kernels.inc"

namespace npu_train::detail {

HWY_EXPORT(float_kernels);
HWY_EXPORT(bfloat16_kernels);
HWY_EXPORT(half_kernels);

template <class T>
const NormKernels<T>& norm_kernels() {
  if constexpr (std::is_same_v<T, float>) return *HWY_DYNAMIC_DISPATCH(float_kernels)();
  if constexpr (std::is_same_v<T, c10::BFloat16>) return *HWY_DYNAMIC_DISPATCH(bfloat16_kernels)();
  if constexpr (std::is_same_v<T, c10::Half>) return *HWY_DYNAMIC_DISPATCH(half_kernels)();
}

template const NormKernels<float>& norm_kernels<float>();
template const NormKernels<c10::BFloat16>& norm_kernels<c10::BFloat16>();
template const NormKernels<c10::Half>& norm_kernels<c10::Half>();

}  // namespace npu_train::detail
