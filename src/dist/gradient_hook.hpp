// Hooks that run when the gradient of a parameter has been accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

// Calls `fn` in each backward pass, after the hook that the program has set on the parameter, if there is one.
void hook_gradient(const at::Tensor& parameter, std::function<void()> fn);
// Removes the hook; the program's hook stays.
void unhook_gradient(const at::Tensor& parameter);

// Moves a low-precision gradient to the fp32 gradient of its master, so that several gradients are added in fp32. Does nothing without a
// master.
void add_to_master(const Parameter& p);

}  // namespace npu_train::detail
