#include "nn/op_mode.hpp"

#include <torch/library.h>

namespace npu_train::detail {
namespace {

thread_local OpMode* current_mode = nullptr;

void hand_over(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (current_mode == nullptr) return call_below(op, *stack);  // the key was set by someone else
  current_mode->call(op, *stack);
}

// Once per process. The key is one that libtorch leaves to others and that no tensor carries: only threads inside a guard come here.
void install() {
  [[gnu::used]] static const auto* const library = [] {                                          // used: no leak to a sanitizer
    auto* made = new torch::Library(torch::Library::IMPL, "_", kOpModeKey, __FILE__, __LINE__);  // operators may run until the process ends
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
  const NoOpMode below(kOpModeKey);
  op.callBoxed(stack);
}

}  // namespace npu_train::detail
