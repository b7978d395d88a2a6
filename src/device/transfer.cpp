#include "npu_train/device/transfer.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {

Batch to_device(const Batch& batch, const Device& device, bool non_blocking) {
  const auto target = device.c10();
  return translated("to_device", [&] {
    const auto there =
        batch.map([&](const at::Tensor& t) { return t.device() == target ? t : t.to(target, t.scalar_type(), non_blocking); });
    return there.pending.empty() ? there : there.finished();
  });
}

Batch pin(const Batch& batch) {
  for (const auto* backend : all_backends())
    if (backend->is_available() && backend->capabilities({backend->name(), 0}).pinned_memory)
      return translated("pin", [&] { return batch.map([](const at::Tensor& t) { return t.device().is_cpu() ? t.pin_memory() : t; }); });
  return batch;
}

HostCopy::HostCopy(const at::Tensor& tensor) : source_(tensor.detach()) {
  if (source_.is_cpu()) return;
  const auto device = device_of(source_.device());
  const auto can = backend_of(device).capabilities(device);
  if (!can.pinned_memory || !can.streams) return;
  translated("HostCopy", [&] {
    host_ = at::empty(source_.sizes(), at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
    host_.copy_(source_.to(at::kFloat), /*non_blocking=*/true);
    const auto type = source_.device().type();
    queued_ = std::make_shared<c10::Event>(type);
    queued_->record(c10::impl::getDeviceGuardImpl(type)->getStream(source_.device()));
  });
}

at::Tensor HostCopy::get() const {
  if (!host_.defined()) return source_.to(at::kCPU, at::kFloat).contiguous();
  translated("HostCopy", [&] { queued_->synchronize(); });
  return host_;
}

}  // namespace npu_train
