#include "npu_train/device/generic_backend.hpp"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

// Returns the allocator if it is a DeviceAllocator. torch_npu's is one only from 2.13 on, and at::getDeviceAllocator would abort for older
// versions.
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
  } catch (const c10::Error&) {  // an allocator need not support this
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
