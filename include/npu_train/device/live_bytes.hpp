/// What tensors hold at this moment, and at the worst moment: exact where the resident set of the process shows only pages.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "npu_train/device/device.hpp"
#include "npu_train/device/host_blocks.hpp"

namespace npu_train {

/// Counts the bytes of host memory that tensors take from now on, in this thread and in the threads of backward passes that it starts,
/// until the end of the scope. Blocks of before do not count, nor their freeing. Other threads do not see it. Not inside libtorch's
/// profiler, which counts by the same means: the inner of the two counts.
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

/// Peak bytes of tensors on `device` while `fn` runs, beyond those allocated before; -1: the device does not report it. Waits for the
/// device.
int64_t peak_bytes_of(const Device& device, const std::function<void()>& fn);

}  // namespace npu_train
