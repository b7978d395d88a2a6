/// Reads saved state for slices of parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

/// Returns the part of `saved` that corresponds to p.value. `saved` has the shape of the complete parameter, or is already this slice
/// (1-D). Undefined for any other shape.
inline at::Tensor saved_part(const Parameter& p, const at::Tensor& saved) {
  if (saved.sizes() == p.whole().sizes()) return p.part_of(saved);
  const bool same_slice = p.is_slice() && saved.dim() == 1 && saved.numel() == p.value.numel();
  return same_slice ? saved : at::Tensor();
}

}  // namespace npu_train::detail
