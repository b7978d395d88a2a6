#include "kernels/batch_norm_kernels.hpp"

#include <algorithm>
#include <bit>

#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)  // Clang has no word for the first
#define NPU_TRAIN_NORM_FMA
#endif

namespace npu_train::detail {
namespace any_machine {
#include "kernels/batch_norm_kernels.inc"
}  // namespace any_machine

#if defined(__x86_64__) && defined(__GNUC__)
#define NPU_TRAIN_NORM_AVX2
#undef NPU_TRAIN_NORM_FMA
#define NPU_TRAIN_NORM_FMA
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
#include "kernels/batch_norm_kernels.inc"
}  // namespace avx2
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

template <class T>
const NormKernels<T>& norm_kernels() {
#ifdef NPU_TRAIN_NORM_AVX2
  static const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (fast) return avx2::kKernels<T>;
#endif
  return any_machine::kKernels<T>;
}

template const NormKernels<float>& norm_kernels<float>();
template const NormKernels<c10::BFloat16>& norm_kernels<c10::BFloat16>();
template const NormKernels<c10::Half>& norm_kernels<c10::Half>();

}  // namespace npu_train::detail
