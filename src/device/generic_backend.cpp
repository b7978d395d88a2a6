#include "device/generic_backend.hpp"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// torch_npu's allocator is not a DeviceAllocator before 2.13: at::getDeviceAllocator would abort, a cast tells.
c10::DeviceAllocator* device_allocator(c10::DeviceType type) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

}  // namespace

at::Tensor generator_state(const c10::Device& device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void seed_generator(const c10::Device& device, uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

void check_generator_state(const c10::Device& device, const at::Tensor& state) {
  const auto own = generator_state(device);
  check(state.defined() && state.scalar_type() == own.scalar_type() && state.sizes() == own.sizes(), ErrorKind::Checkpoint, "random",
        "the saved state of the generator of ", device.str(), " is not one: it has ", state.defined() ? state.numel() : 0, " elements, ",
        own.numel(), " are expected");
}

void set_generator_state(const c10::Device& device, const at::Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  try {
    generator.set_state(state.to(at::kCPU).contiguous());
  } catch (const c10::Error& e) {
    throw Error(ErrorKind::Checkpoint, "random", "the saved state of the generator of " + device.str() + " is damaged", "",
                std::current_exception());
  }
}

int GenericBackend::count() const {
  if (!c10::impl::hasDeviceGuardImpl(type_)) return 0;
  return c10::impl::getDeviceGuardImpl(type_)->deviceCount();
}

void GenericBackend::require() const {
  if (!is_available()) throw Error(ErrorKind::Device, "device " + name_, why_not());
}

c10::Device GenericBackend::checked(const Device& device) const {
  require();
  check(device.index >= 0 && device.index < count(), ErrorKind::Device, "device", device.str(), " is not there: this machine has ", count(),
        " of ", name_);
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
  out.allocated = stats.allocated_bytes[0].current;  // [0]: all pools together
  out.peak = stats.allocated_bytes[0].peak;
  out.reserved = stats.reserved_bytes[0].current;
  try {
    out.total = static_cast<int64_t>(allocator->getMemoryInfo(d.index()).second);
  } catch (const c10::Error&) {  // optional for an allocator
  }
  return out;
}

void GenericBackend::reset_peak(const Device& device) const {
  const auto d = checked(device);
  if (auto* allocator = device_allocator(type_)) allocator->resetPeakStats(d.index());
}

void GenericBackend::seed(uint64_t seed) const {
  require();
  for (int i = 0; i < count(); ++i) seed_generator({type_, static_cast<c10::DeviceIndex>(i)}, seed);
}

State GenericBackend::rng_state() const {
  require();
  State out;
  for (int i = 0; i < count(); ++i) out.tensors[Device{name_, i}.str()] = generator_state({type_, static_cast<c10::DeviceIndex>(i)});
  return out;
}

void GenericBackend::set_rng_state(const State& state) const {
  require();
  for (const bool apply : {false, true})
    for (int i = 0; i < count(); ++i) {
      const auto found = state.tensors.find(Device{name_, i}.str());
      if (found == state.tensors.end()) continue;
      const c10::Device d(type_, static_cast<c10::DeviceIndex>(i));
      apply ? set_generator_state(d, found->second) : check_generator_state(d, found->second);
    }
}

}  // namespace npu_train::detail
