/// Intercepts the operators that this thread calls: the C++ counterpart of libtorch's Python modes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace npu_train::detail {

/// Receiver of intercepted operators.
class OpMode {
 public:
  virtual ~OpMode() = default;
  /// Called for an operator with its inputs on the stack; replaces them with its outputs. If operators call others, only the outermost one
  /// is intercepted.
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
};

/// Dispatch key of modes. libtorch reserves it for an external library (torchdistx, archived in 2023). libtorch 2.11 to 2.13 register
/// nothing for it, and no tensor has it. TESTING_ONLY_GenericMode would also work, but other libraries that record operators use it.
constexpr auto kOpModeKey = c10::DispatchKey::DeferredInit;

/// In its scope, `mode` receives this thread's operators. Guards nest; the innermost mode receives them.
class OpModeGuard {
 public:
  /// Error(Device) if another library in the process has registered a fallback for kOpModeKey.
  explicit OpModeGuard(OpMode& mode);
  ~OpModeGuard();
  OpModeGuard(const OpModeGuard&) = delete;
  OpModeGuard& operator=(const OpModeGuard&) = delete;

 private:
  OpMode* before_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// Returns whether a mode intercepts this thread's operators. If so, code with its own kernels calls the operators instead.
bool in_op_mode();

/// Calls the operator without interception.
void call_below(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// In its scope, this thread's operators are not intercepted.
struct NoOpMode {
  c10::impl::ExcludeDispatchKeyGuard guard{kOpModeKey};
};

}  // namespace npu_train::detail
