/// Linear layers by oneDNN with prepacked weights, where they are faster than libtorch's matrix product.
///
/// libtorch computes fp32 products with MKL, which reserves its best kernels for Intel's processors. On other processors, oneDNN with
/// prepacked weights is faster, and packing pays from about a thousand rows. Forward and input gradient use oneDNN; the weight gradient
/// (two large operands) uses MKL. The choice depends only on sizes and processor, never on a timing.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Computes at::linear(x, weight, bias) for x [..., in], weight [out, in] and bias [out] or undefined; equal up to the order of additions.
/// Packs the weight on x86 CPUs of vendors other than Intel if x has at least 1024 rows, for fp32 and inside a region that emulates a low
/// precision (rounded inputs and results, see precision/emulation.hpp). Other cases call at::linear. Errors of libtorch become Error; a
/// double backward of a packed layer is Error(Usage).
at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace npu_train
