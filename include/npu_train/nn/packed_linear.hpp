/// Linear layers by oneDNN with prepacked weights, where that is faster than the matrix product of libtorch.
///
/// libtorch computes fp32 products with MKL, which keeps its best kernels for Intel's processors. On others oneDNN is faster with prepacked
/// weights, and the packing pays from about a thousand rows: forward and input gradient use oneDNN, the weight gradient (two large
/// operands) uses MKL. Which form runs follows from sizes and processor only, never from a timing.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// at::linear(x, weight, bias) for x [..., in], weight [out, in] and bias [out] or undefined, of the same value up to the order of sums.
/// Packed for fp32 on an x86 CPU that is not Intel's and at least 1024 rows, also inside a region that emulates a low precision (rounded
/// inputs and results, see precision/emulation.hpp); everything else is at::linear itself. Errors of at::linear come as Error; a double
/// backward of a packed layer is Error(Usage).
at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace npu_train
