/// Tensors as they are written into files.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

/// Returns the values on the host, row-major, with a pending (lazy) negation applied. Copies only if necessary.
inline at::Tensor host_contiguous(const at::Tensor& tensor) { return tensor.detach().cpu().resolve_neg().contiguous(); }

}  // namespace npu_train::detail
