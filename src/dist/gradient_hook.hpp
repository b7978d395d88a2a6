// What happens when the gradient of a parameter has been accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace npu_train::detail {

// Calls `fn` in each backward pass, after a hook that a program has set before.
void hook_gradient(const at::Tensor& parameter, std::function<void()> fn);
// Undoes it; the program's hook stays.
void unhook_gradient(const at::Tensor& parameter);

}  // namespace npu_train::detail
