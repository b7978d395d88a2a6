/// Checks functions whose gradients have no gradients.
#pragma once
#include "testing.hpp"

#include <torch/autograd.h>

namespace npu_train::testing {

/// Checks that a request for a differentiable gradient of `y` with respect to `x` is an Error. Keeps the graph of `y`.
inline void check_no_double_backward(const at::Tensor& y, const at::Tensor& x) {
  const auto e = error_of([&] { torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true); });
  CHECK_MESSAGE(has(e.what(), "double backward"), e.what());
}

}  // namespace npu_train::testing
