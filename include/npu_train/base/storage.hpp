/// The identity of a tensor's memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// The storage of a tensor's values, equal for a tensor and its views, as long as one of them lives. nullptr for an undefined tensor and
/// for one without memory of its own (for example, a sparse one).
inline const void* storage_of(const at::Tensor& t) { return t.defined() && t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr; }

/// Whether both are the same elements of the same memory, in the same order and dtype: a tensor and what `detach()` makes of it, not its
/// slices or transposed views.
inline bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  return storage_of(a) != nullptr && storage_of(a) == storage_of(b) && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type() && a.sizes().equals(b.sizes()) && a.strides().equals(b.strides());
}

}  // namespace npu_train
