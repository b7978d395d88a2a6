/// The check of functions whose gradients have no gradients.
#pragma once
#include "testing.hpp"

#include <torch/autograd.h>

namespace npu_train::testing {

/// Checks that a gradient of `y` by `x` which shall itself have a gradient is an Error. The graph of `y` is kept.
inline void check_no_double_backward(const at::Tensor& y, const at::Tensor& x) {
  const auto e = error_of([&] { torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true); });
  CHECK_MESSAGE(has(e.what(), "double backward"), e.what());
}

}  // namespace npu_train::testing
