// What the hooks under libtorch's autocast share, and how Autocast switches those of its thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <optional>

#include "npu_train/precision/fp32_ops.hpp"

namespace npu_train::detail {

// While it lives, nothing warns: registering over a kernel does, and is meant.
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

// The kernel that an operator has for `key` now; nothing where the key is passed over.
inline std::optional<c10::SafeKernelFunction> kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  if (!op.hasKernelForDispatchKey(key)) return std::nullopt;
  return op.getComputedKernelForDispatchKey(key);
}

// Puts the emulating kernels in place, once per process.
void install_emulation();

// Sets which operators this thread computes in fp32 under the autocast of `type` and gives what it was before.
Fp32Ops exchange_fp32_ops(c10::DeviceType type, Fp32Ops ops);
Fp32Ops current_fp32_ops(c10::DeviceType type);

}  // namespace npu_train::detail
