// Shared parts of the kernels that are registered under libtorch's autocast keys, and of the thread state that Autocast switches.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <optional>

#include "npu_train/precision/fp32_ops.hpp"

namespace npu_train::detail {

// Suppresses libtorch's warnings, because overriding a registered kernel is intended.
class QuietRegistration {
 public:
  QuietRegistration() : guard_(&silence_) {}

 private:
  struct Silence : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Silence silence_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

// Returns the operator's current kernel for `key`; nullopt if the key falls through.
inline std::optional<c10::SafeKernelFunction> kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  if (!op.hasKernelForDispatchKey(key)) return std::nullopt;
  return op.getComputedKernelForDispatchKey(key);
}

// Registers the emulating kernels, once per process.
void install_emulation();

// Sets the operators that this thread computes in fp32 under the autocast of `type`, and returns the previous ones.
Fp32Ops exchange_fp32_ops(c10::DeviceType type, Fp32Ops ops);
Fp32Ops current_fp32_ops(c10::DeviceType type);

}  // namespace npu_train::detail
