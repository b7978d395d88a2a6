#include "npu_train/trace/op_mode.hpp"

#include <torch/library.h>

#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

thread_local OpMode* current_mode = nullptr;

void hand_over(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (current_mode == nullptr) return call_below(op, *stack);  // other code has set the key
  current_mode->call(op, *stack);
}

// Installs the fallback once per process; only threads inside a guard reach it. If the key is taken, the next guard tries again.
void install() {
  [[gnu::used]] static const auto* const library = [] {  // keeps the pointer, so that sanitizers report no leak
    check(!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kOpModeKey), ErrorKind::Device, "operator mode",
          "another library of this process has registered a fallback for the dispatch key ", kOpModeKey,
          ", through which npu_train sees the operators of a thread; one library of a process can have it; hint: do not load that library "
          "(torchdistx is one) into this process");
    auto* made = new torch::Library(torch::Library::IMPL, "_", kOpModeKey, __FILE__, __LINE__);  // leaked: operators may run until exit
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&hand_over>());
    return made;
  }();
}

OpMode* exchange_mode(OpMode* mode) {
  install();
  return std::exchange(current_mode, mode);
}

}  // namespace

OpModeGuard::OpModeGuard(OpMode& mode) : before_(exchange_mode(&mode)), include_(kOpModeKey) {}

OpModeGuard::~OpModeGuard() { current_mode = before_; }

bool in_op_mode() { return current_mode != nullptr && !c10::impl::tls_is_dispatch_key_excluded(kOpModeKey); }

void call_below(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const NoOpMode below;
  op.callBoxed(stack);
}

}  // namespace npu_train::detail
