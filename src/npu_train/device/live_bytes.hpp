/// Current and peak bytes of tensors. They are exact, unlike the resident set of a process, which counts pages.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "npu_train/device/device.hpp"
#include "npu_train/device/host_blocks.hpp"

namespace npu_train {

/// Counts the bytes of host memory that tensors allocate until the end of the scope, in this thread and in the threads of backward passes
/// that it starts. Earlier blocks, and their release, do not count; other threads are not affected. libtorch's profiler uses the same
/// mechanism: if a profiler and a LiveBytes are nested, only the inner one counts.
class LiveBytes {
 public:
  LiveBytes();
  ~LiveBytes();
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;

  int64_t now() const;
  int64_t peak() const;

 private:
  class Count;
  HostBlocks blocks_;
  std::shared_ptr<Count> count_;
  c10::DebugInfoGuard guard_;
};

/// Returns the peak bytes of tensors on `device` while `fn` runs, minus those allocated before; -1 if the device does not report it. Waits
/// for the device.
int64_t peak_bytes_of(const Device& device, const std::function<void()>& fn);

}  // namespace npu_train
