/// A tensor as its bytes go into a file.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// The values on the host, row-major, none of them only marked as negated. Copies only what is not so already.
inline at::Tensor host_contiguous(const at::Tensor& tensor) { return tensor.detach().cpu().resolve_neg().contiguous(); }

}  // namespace npu_train::detail
