// Takes over the operators that this thread calls: what libtorch's modes do in Python, for C++.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace npu_train::detail {

class OpMode {
 public:
  virtual ~OpMode() = default;
  // An operator with its inputs on the stack; leaves its outputs there. Of operators that call others the outermost comes here.
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
};

// While it lives, the operators of this thread go to `mode`. Nested guards: the inner one's mode is asked.
class OpModeGuard {
 public:
  explicit OpModeGuard(OpMode& mode);
  ~OpModeGuard();
  OpModeGuard(const OpModeGuard&) = delete;
  OpModeGuard& operator=(const OpModeGuard&) = delete;

 private:
  OpMode* before_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

// Whether a mode is asked for the next operator of this thread: kernels that are no operators then step aside for those that are.
bool in_op_mode();

// As if no mode were there.
void call_below(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// While it lives, no mode of this thread is asked.
using NoOpMode = c10::impl::ExcludeDispatchKeyGuard;
constexpr auto kOpModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace npu_train::detail
