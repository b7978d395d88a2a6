#include "tools/align/block_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "npu_train/kernels/rounding.hpp"

// SVE and RVV are disabled: sums keep their lanes in arrays of vectors, whose size must be known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "tools/align/block_kernels.inc"
#include <hwy/foreach_target.h>

#include "tools/align/block_kernels.inc"

namespace npu_train::detail {

HWY_EXPORT(float_kernels);
HWY_EXPORT(double_kernels);

template <class T>
const BlockKernels<T>& block_kernels() {
  if constexpr (std::is_same_v<T, float>) return *HWY_DYNAMIC_DISPATCH(float_kernels)();
  if constexpr (std::is_same_v<T, double>) return *HWY_DYNAMIC_DISPATCH(double_kernels)();
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
