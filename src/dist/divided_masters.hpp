// Masters of which each rank keeps a slice, while it has all of the tensors that the model computes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

// A tensor of the sizes and strides of `like`, with these options, that has no memory. What reads or writes it gets an error of libtorch
// with the text `why_not`.
at::Tensor without_memory(const at::Tensor& like, const at::TensorOptions& options, const std::string& why_not);

// The same for the master of a parameter, of which this rank keeps a slice.
at::Tensor divided_master(const Parameter& parameter, const at::TensorOptions& options);

// The slices of masters get memory of their own, one after the other, and the masters that they are of give theirs up.
void divide_masters(const ParameterSet& parameters, ParameterSet& slices);

// Gives masters memory again, with any content; returns, for each of `parameters`, its master, otherwise an undefined tensor.
std::vector<at::Tensor> masters_with_memory(const ParameterSet& parameters);

}  // namespace npu_train::detail
