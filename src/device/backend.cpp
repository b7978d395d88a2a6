#include "npu_train/device/backend.hpp"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <optional>

#include "device/builtin_backends.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {

const std::array<const DeviceBackend*, 4>& detail::builtin_backends() {
  static const std::array<const DeviceBackend*, 4> backends = {&npu_backend(), &cuda_backend(), &cpu_backend(), &sim_npu_backend()};
  return backends;
}

namespace {

/// Kinds added by programs. Never destroyed, because devices are used until the process ends.
struct AddedBackends {
  std::mutex mutex;
  std::deque<std::shared_ptr<const DeviceBackend>> list;

  // Call it with the mutex locked.
  const DeviceBackend* find(const std::string& kind) const {
    for (const auto* backend : detail::builtin_backends())
      if (backend->name() == kind) return backend;
    for (const auto& backend : list)
      if (backend->name() == kind) return backend.get();
    return nullptr;
  }
};

AddedBackends& added_backends() {
  static auto* const added = new AddedBackends;
  return *added;
}

}  // namespace

std::vector<const DeviceBackend*> all_backends() {
  std::vector<const DeviceBackend*> out(detail::builtin_backends().begin(), detail::builtin_backends().end());
  auto& added = added_backends();
  const std::lock_guard<std::mutex> lock(added.mutex);
  for (const auto& backend : added.list) out.push_back(backend.get());
  return out;
}

const DeviceBackend* find_backend(const std::string& kind) {
  auto& added = added_backends();
  const std::lock_guard<std::mutex> lock(added.mutex);
  return added.find(kind);
}

void add_backend(std::shared_ptr<const DeviceBackend> backend) {
  check(backend != nullptr, ErrorKind::Usage, "add_backend", "the backend is nullptr");
  const auto name = backend->name();
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  check(!name.empty() && name != "auto" && std::all_of(name.begin(), name.end(), allowed), ErrorKind::Usage, "add_backend", "'", name,
        "' is not a name for a kind of device; allowed: lower-case letters, digits and '_', except auto");
  auto& added = added_backends();
  const std::lock_guard<std::mutex> lock(added.mutex);
  check(added.find(name) == nullptr, ErrorKind::Usage, "add_backend", "there is a kind of device '", name, "' already");
  added.list.push_back(std::move(backend));
}

const DeviceBackend& backend_of(const Device& device) {
  if (const auto* backend = find_backend(device.kind)) return *backend;
  throw Error(ErrorKind::Usage, "device", "there is no kind of device '" + device.kind + "'");
}

namespace {

// Returns the Device of a PrivateUse1 device; nullopt for other devices. Every training step calls the functions below. For other devices,
// their results are fixed and need no lookup.
std::optional<Device> npu_of(const c10::Device& device) {
  return device.is_privateuseone() ? std::optional(device_of(device)) : std::nullopt;
}

}  // namespace

const DeviceBackend* saturating_backend(const c10::Device& device) {
  const auto npu = npu_of(device);
  if (!npu) return nullptr;
  const auto& backend = backend_of(*npu);
  return backend.capabilities(*npu).saturating_overflow ? &backend : nullptr;
}

bool has_all_fused_optimizers(const c10::Device& device) {
  const auto npu = npu_of(device);
  return !npu || backend_of(*npu).capabilities(*npu).all_fused_optimizers;
}

bool has_fused_sgd(const c10::Device& device) {
  const auto npu = npu_of(device);
  if (!npu) return true;
  const auto has = backend_of(*npu).capabilities(*npu);
  return has.all_fused_optimizers || has.fused_sgd;
}

bool has_fp64(const c10::Device& device) {
  const auto npu = npu_of(device);
  return device.is_cpu() || device.is_cuda() || (npu && backend_of(*npu).capabilities(*npu).fp64);
}

void DeviceBackend::backward(const at::Tensor& loss) const { loss.backward(); }

namespace {

// Returns the allocator if it is a DeviceAllocator. torch_npu's allocator is one only from version 2.13 on, and at::getDeviceAllocator
// would abort for older versions.
c10::DeviceAllocator* device_allocator(c10::DeviceType type) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

}  // namespace

int GenericBackend::count() const {
  if (!c10::impl::hasDeviceGuardImpl(type_)) return 0;
  return c10::impl::getDeviceGuardImpl(type_)->deviceCount();
}

void GenericBackend::require() const {
  if (!is_available()) throw Error(ErrorKind::Device, "device " + name_, why_not());
}

c10::Device GenericBackend::checked(const Device& device) const {
  require();
  check(device.index >= 0 && device.index < count(), ErrorKind::Device, "device", device.str(), " does not exist: this machine has ",
        count(), " of ", name_);
  return {type_, static_cast<c10::DeviceIndex>(device.index)};
}

void GenericBackend::synchronize(const Device& device) const {
  const auto d = checked(device);
  c10::impl::getDeviceGuardImpl(type_)->synchronizeDevice(d.index());
}

MemoryStats GenericBackend::memory(const Device& device) const {
  const auto d = checked(device);
  MemoryStats out;
  auto* allocator = device_allocator(type_);
  if (allocator == nullptr) return out;
  const auto stats = allocator->getDeviceStats(d.index());
  out.allocated = stats.allocated_bytes[0].current;  // [0]: the total of all pools
  out.peak = stats.allocated_bytes[0].peak;
  out.reserved = stats.reserved_bytes[0].current;
  try {
    out.total = static_cast<int64_t>(allocator->getMemoryInfo(d.index()).second);
  } catch (const c10::Error&) {  // not every allocator supports this
  }
  return out;
}

void GenericBackend::reset_peak(const Device& device) const {
  const auto d = checked(device);
  if (auto* allocator = device_allocator(type_)) allocator->resetPeakStats(d.index());
}

void GenericBackend::empty_cache(const Device& device) const {
  checked(device);
  if (auto* allocator = device_allocator(type_)) allocator->emptyCache();
}

at::Generator GenericBackend::generator(const Device& device) const { return at::globalContext().defaultGenerator(checked(device)); }

}  // namespace npu_train
