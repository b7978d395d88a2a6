#include "tools/align/block_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "npu_train/kernels/rounding.hpp"

namespace npu_train::detail {
namespace align_any_machine {
#include "tools/align/block_kernels.inc"
}  // namespace align_any_machine

// No fused multiply-add, so that both sets give the same bits.
#if defined(__x86_64__) && defined(__GNUC__)
#define NPU_TRAIN_ALIGN_AVX2
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace align_avx2 {
#include "tools/align/block_kernels.inc"
}  // namespace align_avx2
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

template <class T>
const BlockKernels<T>& block_kernels() {
#ifdef NPU_TRAIN_ALIGN_AVX2
  static const bool fast = __builtin_cpu_supports("avx2");
  if (fast) return align_avx2::kKernels<T>;
#endif
  return align_any_machine::kKernels<T>;
}

template const BlockKernels<float>& block_kernels<float>();
template const BlockKernels<double>& block_kernels<double>();

bool widens_to_float(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf; }

bool widens_to_double(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kLong:
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kUInt64:
    case at::kUInt32:
    case at::kUInt16:
    case at::kByte:
    case at::kBool:
      return true;
    default:
      return widens_to_float(dtype);
  }
}

}  // namespace npu_train::detail
