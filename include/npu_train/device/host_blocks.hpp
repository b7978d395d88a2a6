/// Reports each block of host memory that tensors of a thread allocate and free to the watcher of that thread.
///
/// libtorch reports them too, to a reporter whose memoryProfilingEnabled() is true. But it then complains on stderr of blocks that are
/// older than the watching, which every training step frees: gradients, the last batch.
#pragma once

#include <c10/core/Allocator.h>

namespace npu_train {

/// While a HostBlocks lives, receives the blocks of the CPU that its thread allocates (it is set as DebugInfoKind::PROFILER_STATE), and
/// their release in any scope. libtorch's own reports of the CPU stay off.
class HostBlockWatcher : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const final { return false; }
};

/// While one lives, an allocator that reports wraps the previous allocator of the CPU, in all threads. Scopes nest, and end in any order.
/// Blocks may outlive the scope.
class HostBlocks {
 public:
  HostBlocks();
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;
};

}  // namespace npu_train
