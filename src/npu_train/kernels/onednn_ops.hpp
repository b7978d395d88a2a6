/// Operators of oneDNN that libtorch registers but declares in no header.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <utility>

namespace npu_train::detail {

/// Returns the operator; nullopt if this libtorch, CPU or setting does not provide it.
inline std::optional<c10::OperatorHandle> onednn(const char* name, const char* overload = "") {
  if (!at::globalContext().hasMKLDNN() || !at::globalContext().userEnabledMkldnn()) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

/// Calls an operator whose result is one tensor.
inline at::Tensor call_boxed(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  op.callBoxed(stack);
  return stack[0].toTensor();
}

}  // namespace npu_train::detail
