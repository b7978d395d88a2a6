/// Whether a tensor's values exist on this rank.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Returns whether a tensor has memory. Sharded parameters and sharded masters have a shape but no memory. Sharded parameters also have a
/// storage of the right size. An access to the data is an error that names the parameter.
inline bool has_memory(const at::Tensor& t) {
  return t.defined() && t.has_storage() && t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

}  // namespace npu_train
