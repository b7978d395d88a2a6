// The squared norm of gradients on any device.
#pragma once

#include <vector>

#include "npu_train/base/squared_norm.hpp"

namespace npu_train::detail {

// Returns the numbers of a gradient as a 1-D real tensor in the storage order of its parameter, whatever the gradient's own strides.
at::Tensor in_memory_order(const at::Tensor& parameter, const at::Tensor& gradient);

// Returns the squared norm of gradients that come from in_memory_order(). The parts are on `home`.
SquaredNorm squared_norm(const std::vector<at::Tensor>& gradients, const at::Device& home);

// Returns the parts for gradients on one device, computed by fp64 operators without a host read. They have the same value as those of the
// CPU kernels, but carries between their limbs are not propagated.
at::Tensor parts_by_operators(const std::vector<at::Tensor>& gradients);

// Groups tensors by device and dtype, as fused foreach kernels need.
std::vector<std::vector<at::Tensor>> grouped(const std::vector<at::Tensor>& tensors);

}  // namespace npu_train::detail
