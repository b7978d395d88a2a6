/// Batches between host and device.
#pragma once

#include "npu_train/base/batch.hpp"
#include "npu_train/device/device.hpp"

namespace npu_train {

/// The batch on `device`; tensors that are there already are shared. `non_blocking`: a copy from pinned memory is queued and the call
/// returns at once (later work on the device's current stream waits for it by itself).
Batch to_device(const Batch& batch, const Device& device, bool non_blocking = true);

/// The batch in page-locked host memory where an accelerator is present that gains from it; else the same batch.
Batch pin(const Batch& batch);

}  // namespace npu_train
