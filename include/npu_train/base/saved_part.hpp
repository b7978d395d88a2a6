/// Saved state where a rank holds slices of parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

/// What `saved` has in the place of p.value: of a tensor of all of the parameter, or of that very slice of it, 1-D. Undefined if its shape
/// is neither.
inline at::Tensor saved_part(const Parameter& p, const at::Tensor& saved) {
  if (saved.sizes() == p.whole().sizes()) return p.part_of(saved);
  const bool same_slice = p.is_slice() && saved.dim() == 1 && saved.numel() == p.value.numel();
  return same_slice ? saved : at::Tensor();
}

}  // namespace npu_train::detail
