// What happens when the gradient of a parameter has been accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

// Calls `fn` in each backward pass, after a hook that a program has set before.
void hook_gradient(const at::Tensor& parameter, std::function<void()> fn);
// Undoes it; the program's hook stays.
void unhook_gradient(const at::Tensor& parameter);

// Moves a gradient in low precision to the fp32 one of its master, so that several of them are added in fp32. Nothing without a master.
void add_to_master(const Parameter& p);

}  // namespace npu_train::detail
