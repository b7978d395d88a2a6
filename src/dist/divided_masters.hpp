// Sharded masters: each rank keeps a slice of each master, but the complete tensors that the model computes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

// Returns a tensor with the sizes and strides of `like` but without memory; an access throws an error of libtorch with the text `why_not`.
at::Tensor without_memory(const at::Tensor& like, const at::TensorOptions& options, const std::string& why_not);

// Returns such a tensor in place of a parameter's master, of which this rank keeps a slice.
at::Tensor divided_master(const Parameter& parameter, const at::TensorOptions& options);

// Copies the slices of masters to memory of their own, one after the other, and frees the memory of the masters.
void divide_masters(const ParameterSet& parameters, ParameterSet& slices);

// Gives masters memory again, with undefined content. Returns the master of each parameter, or an undefined tensor if it has none.
std::vector<at::Tensor> masters_with_memory(const ParameterSet& parameters);

}  // namespace npu_train::detail
