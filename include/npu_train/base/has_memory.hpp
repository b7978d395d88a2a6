/// Whether a tensor's values exist on this rank.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Returns whether a tensor has memory. Sharded parameters and masters have a shape but no memory; parameters also have a storage of the
/// right size. An access to their data is an error that names them.
inline bool has_memory(const at::Tensor& t) {
  return t.defined() && t.has_storage() && t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

}  // namespace npu_train
