/// The identity of a tensor's memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// The storage of a tensor's values, equal for a tensor and its views, as long as one of them lives. nullptr for an undefined tensor and
/// for one without memory of its own (for example, a sparse one).
inline const void* storage_of(const at::Tensor& t) { return t.defined() && t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr; }

}  // namespace npu_train
