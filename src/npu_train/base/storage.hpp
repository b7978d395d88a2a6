/// The identity of a tensor's memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Returns an address that a tensor and its views share; it is unique while one of them exists. nullptr for an undefined tensor and for one
/// without its own memory (for example, a sparse tensor).
inline const void* storage_of(const at::Tensor& t) { return t.defined() && t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr; }

/// Returns whether both have the same elements at the same addresses, with equal dtype and strides: a tensor and its detach(), but not its
/// slices or transposed views.
inline bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  return storage_of(a) != nullptr && storage_of(a) == storage_of(b) && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type() && a.sizes().equals(b.sizes()) && a.strides().equals(b.strides());
}

}  // namespace npu_train
