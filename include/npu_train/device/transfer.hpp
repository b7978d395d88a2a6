/// Moves batches and numbers between host and device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "npu_train/base/batch.hpp"
#include "npu_train/device/device.hpp"

namespace c10 {
struct Event;
}

namespace npu_train {

/// Returns the batch on `device` after applying its pending changes there; tensors already on it are shared. `non_blocking`: queues copies
/// from pinned memory and returns at once (later work on the device's current stream waits for them automatically).
Batch to_device(const Batch& batch, const Device& device, bool non_blocking = true);

/// Returns the batch in page-locked host memory if an accelerator that benefits from that is present, otherwise the batch itself.
Batch pin(const Batch& batch);

/// A tensor that is being copied to the host. On devices with streams and pinned memory, the constructor queues the copy and returns. get()
/// then waits only for this copy, while an ordinary copy also waits for later work. On other devices get() copies; until then the tensor
/// must not be modified.
class HostCopy {
 public:
  HostCopy() = default;
  explicit HostCopy(const at::Tensor& tensor);
  /// Returns the values as fp32, contiguous, in host memory.
  at::Tensor get() const;

 private:
  at::Tensor source_, host_;  ///< host_ is undefined if get() copies
  std::shared_ptr<c10::Event> queued_;
};

}  // namespace npu_train
