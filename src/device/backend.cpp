#include "npu_train/device/backend.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "device/builtin_backends.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

/// In the order in which "auto" looks.
const std::array<const DeviceBackend*, 4>& builtin_backends() {
  static const std::array<const DeviceBackend*, 4> backends = {&detail::npu_backend(), &detail::cuda_backend(), &detail::cpu_backend(),
                                                               &detail::sim_npu_backend()};
  return backends;
}

/// The kinds that programs added. Never destroyed: devices are used until the process ends.
struct AddedBackends {
  std::mutex mutex;
  std::deque<std::shared_ptr<const DeviceBackend>> list;
};

AddedBackends& added_backends() {
  static auto* const added = new AddedBackends;
  return *added;
}

}  // namespace

std::vector<const DeviceBackend*> all_backends() {
  std::vector<const DeviceBackend*> out(builtin_backends().begin(), builtin_backends().end());
  auto& added = added_backends();
  const std::lock_guard<std::mutex> lock(added.mutex);
  for (const auto& backend : added.list) out.push_back(backend.get());
  return out;
}

const DeviceBackend* find_backend(const std::string& kind) {
  for (const auto* backend : builtin_backends())
    if (backend->name() == kind) return backend;
  auto& added = added_backends();
  const std::lock_guard<std::mutex> lock(added.mutex);
  for (const auto& backend : added.list)
    if (backend->name() == kind) return backend.get();
  return nullptr;
}

void add_backend(std::shared_ptr<const DeviceBackend> backend) {
  check(backend != nullptr, ErrorKind::Usage, "add_backend", "the backend is nullptr");
  const auto name = backend->name();
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  check(!name.empty() && name != "auto" && std::all_of(name.begin(), name.end(), allowed), ErrorKind::Usage, "add_backend", "'", name,
        "' is not a name for a kind of device; allowed: lower-case letters, digits and '_', except auto");
  check(find_backend(name) == nullptr, ErrorKind::Usage, "add_backend", "there is a kind of device '", name, "' already");
  auto& added = added_backends();
  const std::lock_guard<std::mutex> lock(added.mutex);
  added.list.push_back(std::move(backend));
}

const DeviceBackend& backend_of(const Device& device) {
  if (const auto* backend = find_backend(device.kind)) return *backend;
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
