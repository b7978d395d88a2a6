#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <mutex>

#include "npu_train/core/text.hpp"
#include "sim.hpp"

namespace npu_train::sim {
namespace {

using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

// Bytes in use by device, in the form that libtorch's caching allocators report.
class Ledger {
 public:
  // Returns the bytes in use afterwards.
  size_t take(c10::DeviceIndex device, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    DeviceStats& s = stats_[device];
    const auto used = s.allocated_bytes[0].current;
    const int64_t total = sim().hbm_bytes;
    if (static_cast<int64_t>(bytes) > total - used) {
      ++s.num_ooms;
      c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(used), static_cast<size_t>(used), {kType, device});
      C10_THROW_ERROR(OutOfMemoryError, str_cat("NPU out of memory. Tried to allocate ", bytes, " bytes. NPU ", static_cast<int>(device),
                                                " has a total capacity of ", total, " bytes of which ", total - used, " bytes are free."));
    }
    for (auto* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) (*stat)[0].increase(bytes);
    s.allocation[0].increase(1);
    s.active[0].increase(1);
    return static_cast<size_t>(s.allocated_bytes[0].current);
  }

  size_t give_back(c10::DeviceIndex device, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    DeviceStats& s = stats_[device];
    for (auto* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) (*stat)[0].decrease(bytes);
    s.allocation[0].decrease(1);
    s.active[0].decrease(1);
    return static_cast<size_t>(s.allocated_bytes[0].current);
  }

  template <class Fn>
  auto with(c10::DeviceIndex device, Fn fn) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return fn(stats_[device < 0 ? current_device() : device]);
  }

 private:
  std::mutex mutex_;
  std::array<DeviceStats, kMostDevices> stats_{};
};

Ledger& ledger() {
  static auto* one = new Ledger;  // leaked: tensors may outlive static objects
  return *one;
}

struct Block {
  c10::DataPtr host;
  size_t bytes;
  c10::DeviceIndex device;
};

// Reports an allocation or a release to the memory observers of this thread. Without an observer, this costs one read of a thread-local
// variable.
void tell(const Block& block, int64_t bytes, size_t in_use) {
  c10::reportMemoryUsageToProfiler(device_pointer(block.host.get()), bytes, in_use, in_use, {kType, block.device});
}

void release(void* block) {
  auto* b = static_cast<Block*>(block);
  const auto in_use = ledger().give_back(b->device, b->bytes);
  tell(*b, -static_cast<int64_t>(b->bytes), in_use);
  delete b;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = current_device();
    if (bytes == 0) return {nullptr, c10::Device(kType, device)};
    return adopt(c10::GetCPUAllocator()->allocate(bytes), bytes, device);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // a device pointer alone does not identify its block
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(host_pointer(to), host_pointer(const_cast<void*>(from)), bytes);
  }
  bool initialized() override { return sim().devices > 0; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return ledger().with(device, [](DeviceStats& s) { return s; });
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    ledger().with(device, [](DeviceStats& s) {
      for (auto* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) (*stat)[0].reset_accumulated();
    });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    ledger().with(device, [](DeviceStats& s) {
      for (auto* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) (*stat)[0].reset_peak();
    });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto total = static_cast<size_t>(sim().hbm_bytes);
    return {total - static_cast<size_t>(getDeviceStats(device).allocated_bytes[0].current), total};
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

}  // namespace

c10::Allocator* device_allocator() { return &allocator; }

c10::DataPtr adopt(c10::DataPtr host, size_t bytes, c10::DeviceIndex device) {
  const auto in_use = ledger().take(device, bytes);
  void* pointer = device_pointer(host.get());
  auto* block = new Block{std::move(host), bytes, device};
  tell(*block, static_cast<int64_t>(bytes), in_use);
  return {pointer, block, &release, c10::Device(kType, device)};
}

}  // namespace npu_train::sim
