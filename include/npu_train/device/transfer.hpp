/// Batches and numbers between host and device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "npu_train/base/batch.hpp"
#include "npu_train/device/device.hpp"

namespace c10 {
struct Event;
}

namespace npu_train {

/// The batch on `device`, with what was pending done there; tensors that are there already are shared. `non_blocking`: a copy from pinned
/// memory is queued and the call returns at once (later work on the device's current stream waits for it by itself).
Batch to_device(const Batch& batch, const Device& device, bool non_blocking = true);

/// The batch in page-locked host memory where an accelerator is present that gains from it; else the same batch.
Batch pin(const Batch& batch);

/// A tensor's numbers on their way to the host. Where work is queued (a device with streams and pinned memory) the constructor queues a
/// copy and returns, and get() waits for that copy alone: not for what was queued after it, as a plain copy made later would. Elsewhere
/// get() copies: the tensor must not be written to before.
class HostCopy {
 public:
  HostCopy() = default;
  explicit HostCopy(const at::Tensor& tensor);
  /// fp32, contiguous, in host memory.
  at::Tensor get() const;

 private:
  at::Tensor source_, host_;  ///< host_ is undefined where get() copies
  std::shared_ptr<c10::Event> queued_;
};

}  // namespace npu_train
