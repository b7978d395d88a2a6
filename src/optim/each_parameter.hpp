// Updates one parameter after another, for optimizers without a fused kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <utility>
#include <vector>

namespace npu_train::detail {

/// A parameter and its state, which an optimizer changes in place, and its gradient, which is only read. All have the dtype of the
/// computation: fp64 for fp64 parameters, otherwise fp32.
struct Element {
  at::Tensor value, gradient;
  std::vector<at::Tensor> state;  // in the order of the slots; undefined where the parameter does not have the slot
  double lr;
};

/// Calls `change` with each parameter. fp16 and bf16 parameters are rounded once. If the device skips the step, no bit changes.
template <class Bucket, class Fn>
void for_each_parameter(Bucket& b, const Fn& change) {
  const at::Tensor skip = b.found_inf.defined() ? b.found_inf.ne(0) : at::Tensor();
  // copies a tensor if the original must survive a skipped step
  const auto working = [&](const at::Tensor& t) { return skip.defined() && t.defined() ? t.detach().clone() : t; };
  const auto finish = [&](const at::Tensor& target, const at::Tensor& value) {
    if (!target.defined() || target.is_same(value)) return;
    target.copy_(skip.defined() ? at::where(skip, target, value) : value);
  };
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    const at::Tensor parameter = b.parameters[i].detach();
    const auto in = parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Element e{.value = parameter.scalar_type() == in ? working(parameter) : parameter.to(in),
              .gradient = b.gradients[i].to(in),
              .state = {},
              .lr = b.lr};
    for (const auto& slot : b.slots) e.state.push_back(working(slot[i]));
    change(e);
    finish(parameter, e.value);
    for (size_t s = 0; s < b.slots.size(); ++s) finish(b.slots[s][i], e.state[s]);
  }
}

}  // namespace npu_train::detail
