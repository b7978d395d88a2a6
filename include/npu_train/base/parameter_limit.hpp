/// Bounds of a parameter that an optimizer keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace npu_train {

struct ParameterLimit {
  std::string name;  ///< of the parameter
  double least = 0;
  double most = 0;

  /// Each element, moved to the nearest value of [least, most]; NaN stays.
  at::Tensor within(const at::Tensor& value) const { return value.clamp(least, most); }
};

}  // namespace npu_train
