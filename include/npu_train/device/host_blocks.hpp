/// Reports to a thread's watcher each block of host memory that the thread's tensors allocate, and its release.
///
/// libtorch makes such reports, too, if memoryProfilingEnabled() is true. But it then warns on stderr about each release of an earlier
/// block, and every training step releases some: gradients, the last batch.
#pragma once

#include <c10/core/Allocator.h>

namespace npu_train {

/// Receives reports of the CPU blocks that its thread allocates while a HostBlocks exists, and of the release of reported blocks in its
/// thread, including blocks that another watcher saw allocated. It must be set as DebugInfoKind::PROFILER_STATE. libtorch's own reports for
/// the CPU stay off.
class HostBlockWatcher : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const final { return false; }
};

/// In its scope, a reporting allocator wraps the previous CPU allocator, in all threads. Scopes nest, and may end in any order. Blocks may
/// outlive the scope.
class HostBlocks {
 public:
  HostBlocks();
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;
};

}  // namespace npu_train
