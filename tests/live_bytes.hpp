// Memory that a piece of code leaves alive.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

namespace npu_train::testing {

class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes += size; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t bytes = 0;
};

// Bytes that tensors of this thread hold after `fn` beyond before, its result included.
template <class Fn>
int64_t live_after(Fn fn) {
  auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const at::Tensor y = fn();
  return live->bytes;
}

// The same without the result.
template <class Fn>
int64_t kept_by(Fn fn) {
  int64_t result = 0;
  const int64_t live = live_after([&] {
    const at::Tensor y = fn();
    result = static_cast<int64_t>(y.nbytes());
    return y;
  });
  return live - result;
}

}  // namespace npu_train::testing
