/// Takes over the operators that this thread calls: what libtorch's modes do in Python, for C++.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace npu_train::detail {

/// What operators are handed to.
class OpMode {
 public:
  virtual ~OpMode() = default;
  /// Is called for an operator with its inputs on the stack; leaves its outputs there. Of operators that call others, it receives the
  /// outermost.
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
};

/// The dispatch key of modes. libtorch reserves it for a library outside its tree (torchdistx, archived in 2023); libtorch 2.11 to 2.13
/// register nothing for it, and no tensor carries it. TESTING_ONLY_GenericMode would do too, but is what other libraries that record
/// operators take.
constexpr auto kOpModeKey = c10::DispatchKey::DeferredInit;

/// While it lives, the operators of this thread go to `mode`. Guards nest: operators go to the mode of the innermost one.
class OpModeGuard {
 public:
  /// Error(Device) if another library of the process has registered a fallback for kOpModeKey.
  explicit OpModeGuard(OpMode& mode);
  ~OpModeGuard();
  OpModeGuard(const OpModeGuard&) = delete;
  OpModeGuard& operator=(const OpModeGuard&) = delete;

 private:
  OpMode* before_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// Whether a mode receives the next operator of this thread: code that computes without operators then calls the operator instead.
bool in_op_mode();

/// Calls the operator as if there were no mode.
void call_below(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// While it lives, no mode of this thread receives operators.
struct NoOpMode {
  c10::impl::ExcludeDispatchKeyGuard guard{kOpModeKey};
};

}  // namespace npu_train::detail
