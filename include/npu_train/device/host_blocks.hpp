/// Reports to a thread's watcher each block of host memory that the thread's tensors allocate, and its release.
///
/// libtorch has such reports, too, if memoryProfilingEnabled() is true. But it then warns on stderr about blocks allocated before, and
/// every training step frees some: gradients, the last batch.
#pragma once

#include <c10/core/Allocator.h>

namespace npu_train {

/// Receives the CPU blocks that its thread allocates during the lifetime of a HostBlocks (if set as DebugInfoKind::PROFILER_STATE), and
/// their release in any scope. libtorch's own reports for the CPU stay off.
class HostBlockWatcher : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const final { return false; }
};

/// During its lifetime, a reporting allocator wraps the previous CPU allocator, in all threads. Scopes nest, and may end in any order.
/// Blocks may outlive the scope.
class HostBlocks {
 public:
  HostBlocks();
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;
};

}  // namespace npu_train
