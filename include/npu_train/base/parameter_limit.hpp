/// Bounds within which an optimizer keeps a parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace npu_train {

struct ParameterLimit {
  std::string name;  ///< name of the parameter
  double least = 0;
  double most = 0;

  /// Clamps each element to [least, most]; NaN stays NaN.
  at::Tensor within(const at::Tensor& value) const { return value.clamp(least, most); }
};

}  // namespace npu_train
