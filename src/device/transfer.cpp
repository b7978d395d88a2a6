#include "npu_train/device/transfer.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {

Batch to_device(const Batch& batch, const Device& device, bool non_blocking) {
  const auto target = device.c10();
  return translated("to_device", [&] {
    return batch.map([&](const at::Tensor& t) { return t.device() == target ? t : t.to(target, t.scalar_type(), non_blocking); });
  });
}

Batch pin(const Batch& batch) {
  for (const auto* backend : all_backends())
    if (backend->is_available() && backend->capabilities({backend->name(), 0}).pinned_memory)
      return translated("pin", [&] { return batch.map([](const at::Tensor& t) { return t.device().is_cpu() ? t.pin_memory() : t; }); });
  return batch;
}

}  // namespace npu_train
