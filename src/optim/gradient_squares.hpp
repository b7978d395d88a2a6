// The squared norm of gradients, on whatever devices they are.
#pragma once

#include <vector>

#include "npu_train/base/squared_norm.hpp"

namespace npu_train::detail {

// The numbers of a gradient as real ones in one dimension, in the order in which the parameter is in memory, whatever the gradient's own.
at::Tensor in_memory_order(const at::Tensor& parameter, const at::Tensor& gradient);

// Of gradients in that form. The parts are on `home`.
SquaredNorm squared_norm(const std::vector<at::Tensor>& gradients, const at::Device& home);

// The parts of gradients on one device by operators in fp64, without a read by the host: the parts that the CPU's kernels give, not yet
// carried.
at::Tensor parts_by_operators(const std::vector<at::Tensor>& gradients);

// Tensors by device and dtype, which foreach kernels are fused over.
std::vector<std::vector<at::Tensor>> grouped(const std::vector<at::Tensor>& tensors);

}  // namespace npu_train::detail
