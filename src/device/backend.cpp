#include "npu_train/device/backend.hpp"

#include <ATen/core/Tensor.h>

#include "device/generic_backend.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {

const std::vector<const DeviceBackend*>& all_backends() {
  static const std::vector<const DeviceBackend*> backends = {&detail::npu_backend(), &detail::cuda_backend(), &detail::cpu_backend(),
                                                             &detail::sim_npu_backend()};
  return backends;
}

const DeviceBackend& backend_of(const Device& device) {
  for (const auto* backend : all_backends())
    if (backend->name() == device.kind) return *backend;
  throw Error(ErrorKind::Usage, "device", "there is no kind of device '" + device.kind + "'");
}

const DeviceBackend* saturating_backend(const c10::Device& device) {
  if (!device.is_privateuseone()) return nullptr;  // asked in every step: of the kinds above, only NPUs can saturate
  const auto own = device_of(device);
  const auto& backend = backend_of(own);
  return backend.capabilities(own).saturating_overflow ? &backend : nullptr;
}

void DeviceBackend::backward(const at::Tensor& loss) const { loss.backward(); }

}  // namespace npu_train
