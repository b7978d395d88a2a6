// Devices, streams, events, generators and libtorch's hooks for them. Work is complete when a call returns, so a stream is only a number,
// and an event a point in time.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sim.hpp"

namespace npu_train::sim {
namespace {

using Clock = std::chrono::steady_clock;

thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, kMostDevices> streams{};  // 0: the default stream
std::atomic<c10::StreamId> next_stream{1};

c10::DeviceIndex checked(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < sim().devices, "sim_npu: there is no device ", static_cast<int>(device),
              "; number of devices: ", sim().devices);
  return device;
}

struct Event {
  std::atomic<bool> recorded{false};
  Clock::time_point time;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { current = device.has_index() ? checked(device.index()) : current; }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(sim().devices); }

  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.has_index() ? checked(device.index()) : current;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device.has_index() ? checked(device.index()) : current), next_stream++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    streams[checked(stream.device_index())] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    auto* e = static_cast<Event*>(*event);
    e->time = Clock::now();
    e->recorded = true;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override { return event == nullptr || static_cast<Event*>(event)->recorded; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "sim_npu: both events must be recorded before the time between them is requested");
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(to)->time - static_cast<Event*>(from)->time).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// A device generator draws from a host generator, because host kernels accept no other.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex device, at::Generator host = at::make_generator<at::CPUGeneratorImpl>())
      : c10::GeneratorImpl(c10::Device(kType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), host(std::move(host)) {}

  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    refuse_in_graph("the state of the generator was set");
    host.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    refuse_in_graph("the state of the generator was read");
    return host.unsafeGetGeneratorImpl()->get_state();
  }

  at::Generator host;

 private:
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(device().index(), host.clone()); }
};

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* all = [] {
    auto* out = new std::vector<at::Generator>;
    for (int i = 0; i < kMostDevices; ++i) out->push_back(at::make_generator<DeviceGenerator>(static_cast<c10::DeviceIndex>(i)));
    return out;
  }();
  return (*all)[checked(device < 0 ? current : device)];
}

// Page-locked memory is ordinary memory here, but is recorded as page-locked.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto host = c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* pointer = host.get();
    if (pointer == nullptr) return host;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_[pointer] = bytes;
    }
    return {pointer, new c10::DataPtr(std::move(host)), &PinnedAllocator::release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool holds(const void* pointer) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto next = blocks_.upper_bound(pointer);
    if (next == blocks_.begin()) return false;
    --next;
    return static_cast<const char*>(pointer) < static_cast<const char*>(next->first) + next->second;
  }
  static PinnedAllocator& one() {
    static auto* allocator = new PinnedAllocator;
    return *allocator;
  }

 private:
  static void release(void* context) {
    auto* host = static_cast<c10::DataPtr*>(context);
    {
      const std::lock_guard<std::mutex> lock(one().mutex_);
      one().blocks_.erase(host->get());
    }
    delete host;
  }
  mutable std::mutex mutex_;
  std::map<const void*, size_t> blocks_;
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return sim().devices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(sim().devices); }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = checked(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(current, checked(device)); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<DeviceGenerator>(checked(device < 0 ? current : device));
  }
  at::Device getDeviceFromPtr(void*) const override { return {kType, current}; }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::one().holds(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::one(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { resize_storage(storage, bytes); }
};

}  // namespace

c10::DeviceIndex current_device() { return current; }
c10::StreamId current_stream() { return streams[current]; }

at::Generator host_generator(c10::DeviceIndex device) { return default_generator(device).get<DeviceGenerator>()->host; }
at::Generator host_generator(const at::Generator& generator) { return generator.get<DeviceGenerator>()->host; }

void register_hooks() { at::RegisterPrivateUse1HooksInterface(new Hooks); }

}  // namespace npu_train::sim
