#include "kernels/block_squares_kernels.hpp"

// Excludes scalable vectors (SVE, RVV): the kernels keep groups of lanes in an array, which needs vectors of a fixed size.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "kernels/block_squares_kernels.inc"
#include <hwy/foreach_target.h>

#include "kernels/block_squares_kernels.inc"

namespace npu_train::detail {

HWY_EXPORT(block_square_kernels);

const SquareKernels& square_kernels() { return *HWY_DYNAMIC_DISPATCH(block_square_kernels)(); }

}  // namespace npu_train::detail
