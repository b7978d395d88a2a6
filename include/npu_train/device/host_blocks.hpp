/// Every block of host memory that tensors of a thread take and give back, told to who watches that thread.
///
/// libtorch reports them too, to a reporter whose memoryProfilingEnabled() is true. But it then complains on stderr of blocks that are
/// older than the watching, which every training step frees: gradients, the last batch.
#pragma once

#include <c10/core/Allocator.h>

namespace npu_train {

/// Is told of the blocks of the CPU that its thread takes (DebugInfoKind::PROFILER_STATE) while a HostBlocks lives, and of their ends, in
/// whichever scope. libtorch's own reports of the CPU stay off.
class HostBlockWatcher : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const final { return false; }
};

/// While one lives, tensors of the CPU come from the allocator that was there before by way of one that reports, in all threads. Scopes
/// nest, and end in any order. Blocks may outlive the scope.
class HostBlocks {
 public:
  HostBlocks();
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;
};

}  // namespace npu_train
