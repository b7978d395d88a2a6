/// Reads the elements of a tensor on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu_train {

/// Returns the elements in row-major order, converted to fp64. Waits for the tensor's device.
inline std::vector<double> host_numbers(const at::Tensor& t) {
  const auto host = t.detach().to(at::kCPU, at::kDouble).contiguous();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

}  // namespace npu_train
