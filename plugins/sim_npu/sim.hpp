// The state of the simulator, and what its parts share.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sim_npu.h"

namespace npu_train::sim {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr int kMostDevices = 64;

struct Sim {
  std::string soc = "910B1";
  int devices = 0;  // 0: not started
  int64_t hbm_bytes = 0;
  bool saturate = false;
  bool bf16 = true;
  int unsupported = 1;
  void (*warn)(const char*) = nullptr;

  std::atomic<uint64_t> ops{0}, cpu_fallbacks{0}, recompilations{0}, host_reads{0}, host_read_bytes{0};
  std::array<std::atomic<int32_t>, kMostDevices> float_status{};
};

Sim& sim();

// Memory of the device. A pointer into it is the host's with one bit set, which no address of a process has: reading it on the host
// without a copy ends in a fault, as with a real device.
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 55;
inline void* device_pointer(void* host) {
  return host == nullptr ? nullptr : reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kDeviceBit);
}
inline void* host_pointer(void* device) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device) & ~kDeviceBit); }

// The allocator of all devices; takes from the one that is current.
c10::Allocator* device_allocator();

// Memory that the host allocated as memory of a device: it counts there from now on. Throws c10::OutOfMemoryError where it does not fit.
c10::DataPtr adopt(c10::DataPtr host, size_t bytes, c10::DeviceIndex device);

// The same memory seen from the host, and the result of a host kernel as a tensor of a device.
at::Tensor host_view(const at::Tensor& device);
at::Tensor device_tensor(const at::Tensor& host, c10::DeviceIndex device);

// A view of a device tensor's memory with the sizes and strides of `like`.
at::Tensor on_storage_of(const at::Tensor& device, const at::Tensor& like);
// `device` as a kernel left its host view: other sizes, perhaps other memory.
void take_over(const at::Tensor& device, const at::Tensor& host);
void resize_storage(const c10::Storage& storage, size_t bytes);

// A sparse tensor, of a device or of the host, as the dense ones that it is made of. Sizes and flags are those of `like`.
struct Parts {
  at::Tensor indices, values;
};
Parts parts_of(const at::Tensor& sparse);
void set_parts(const at::Tensor& sparse, const at::Tensor& like, const Parts& parts);
at::Tensor sparse_tensor(c10::DispatchKey key, const at::Tensor& like, const Parts& parts);

inline bool on_device(const at::Tensor& t) { return t.defined() && t.device().type() == kType; }

// The host's generator that draws for a device, or for a generator of one.
at::Generator host_generator(c10::DeviceIndex device);
at::Generator host_generator(const at::Generator& generator);

c10::DeviceIndex current_device();
c10::StreamId current_stream();  // of this thread, on the current device; 0: the default one

// What is queued on a stream while a graph is captured there.
class Recording {
 public:
  void begin();  // on the current stream
  void end();    // puts back what was written meanwhile
  void replay() const;
  void clear();
  bool is_here() const;  // whether this thread queues on the stream

  // The value as the graph has it: the same memory, whatever becomes of the tensor.
  static c10::IValue keep(const c10::IValue& value);
  void will_write(const at::Tensor& t);
  void will_write(const c10::IValue& value);
  void add(std::function<void()> work);

 private:
  c10::DeviceIndex device_ = 0;
  c10::StreamId stream_ = 0;
  std::mutex mutex_;  // a backward pass has threads of its own
  std::vector<std::function<void()>> work_;
  std::map<c10::StorageImpl*, std::pair<c10::Storage, std::vector<char>>> before_;
  at::Tensor random_;
};
// The graph that is captured on this thread's stream; nullptr: none.
Recording* recording();
// An error where one is.
void refuse_in_graph(const char* what);

// Where an overflow saturates: what is inf in `view` becomes the largest number and NaN 0, and the device's status remembers it.
void saturate(const at::Tensor& view, c10::DeviceIndex device);
void register_hooks();

// The SoC's facts about an operator. Unsupported: by the vendor's list, whatever kernels exist.
enum class Support { Native, Composite, CpuFallback, Unsupported, Unknown };
struct OperatorRule {
  Support support = Support::Unknown;
  bool on_host = false;  // without a kernel on the chip
  std::string dtypes;    // that the vendor's list names for the first input, as in fp16|fp32; "" where it is silent
};
OperatorRule rule_of(const std::string& name, const std::string& overload);
// Name and overload of each operator with a kernel on the chip.
std::vector<std::pair<std::string, std::string>> native_operators();
void register_native_operators();

}  // namespace npu_train::sim
