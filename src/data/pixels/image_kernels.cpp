#include "data/pixels/image_kernels.hpp"

#include <algorithm>

// Arrays of vectors hold the lanes of sums; SVE and RVV vectors have no compile-time size, so arrays cannot hold them.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "data/pixels/image_kernels.inc"
#include <hwy/foreach_target.h>

#include "data/pixels/image_kernels.inc"

namespace npu_train::detail {

HWY_EXPORT(kernels_here);

const ImageKernels& image_kernels() { return *HWY_DYNAMIC_DISPATCH(kernels_here)(); }

}  // namespace npu_train::detail
