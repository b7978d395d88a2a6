// What tells two tensors of the same memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

// nullptr for a tensor without memory of its own (sparse, for one).
inline const void* storage_of(const at::Tensor& t) { return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr; }

}  // namespace npu_train::detail
