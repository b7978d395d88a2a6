// State of the simulator, and declarations shared by its parts.
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

// Device memory. A device pointer is the host's pointer with one additional bit that no process address has, so that host access without a
// copy faults, as on a real device.
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 55;
inline void* device_pointer(void* host) {
  return host == nullptr ? nullptr : reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kDeviceBit);
}
inline void* host_pointer(void* device) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device) & ~kDeviceBit); }

// Returns the allocator of all devices; it allocates on the current one.
c10::Allocator* device_allocator();

// Turns host memory into memory of a device, and counts it there. Throws c10::OutOfMemoryError if it does not fit.
c10::DataPtr adopt(c10::DataPtr host, size_t bytes, c10::DeviceIndex device);

// Return the host's view of a device tensor, and a host kernel's result as a device tensor.
at::Tensor host_view(const at::Tensor& device);
at::Tensor device_tensor(const at::Tensor& host, c10::DeviceIndex device);

// Returns a view of a device tensor's memory with the sizes and strides of `like`.
at::Tensor on_storage_of(const at::Tensor& device, const at::Tensor& like);
// Updates `device` after a kernel has given its host view other sizes, and possibly other memory.
void take_over(const at::Tensor& device, const at::Tensor& host);
void resize_storage(const c10::Storage& storage, size_t bytes);

// The dense components of a sparse tensor on a device or the host. The functions below take sizes and flags from `like`.
struct Parts {
  at::Tensor indices, values;
};
Parts parts_of(const at::Tensor& sparse);
void set_parts(const at::Tensor& sparse, const at::Tensor& like, const Parts& parts);
at::Tensor sparse_tensor(c10::DispatchKey key, const at::Tensor& like, const Parts& parts);

inline bool on_device(const at::Tensor& t) { return t.defined() && t.device().type() == kType; }

// Returns the host generator that draws for a device, or for a device generator.
at::Generator host_generator(c10::DeviceIndex device);
at::Generator host_generator(const at::Generator& generator);

c10::DeviceIndex current_device();
c10::StreamId current_stream();  // of this thread on the current device; 0: the default stream

// Records the work queued on a stream while a graph is captured.
class Recording {
 public:
  void begin();  // captures the current stream
  void end();    // restores memory written during the capture
  void replay() const;
  void clear();
  bool is_here() const;  // whether this thread is on the captured stream

  // Returns the copy of a value that the graph stores. The copy keeps the memory alive, whatever happens to the original tensor.
  static c10::IValue keep(const c10::IValue& value);
  void will_write(const at::Tensor& t);
  void will_write(const c10::IValue& value);
  void add(std::function<void()> work);

 private:
  c10::DeviceIndex device_ = 0;
  c10::StreamId stream_ = 0;
  std::mutex mutex_;  // backward passes run in other threads
  std::vector<std::function<void()>> work_;
  std::map<c10::StorageImpl*, std::pair<c10::Storage, std::vector<char>>> before_;
  at::Tensor random_;
};
// Returns the recording on this thread's stream, or nullptr.
Recording* recording();
// Throws if work on this thread's stream is being recorded.
void refuse_in_graph(const char* what);

// Replaces inf in `view` by the largest finite number and NaN by 0, and sets the overflow status, for a device that saturates.
void saturate(const at::Tensor& view, c10::DeviceIndex device);
void register_hooks();

// Support of an operator on the SoC. Unsupported: according to the vendor's list, even if kernels exist.
enum class Support { Native, Composite, CpuFallback, Unsupported, Unknown };
struct OperatorRule {
  Support support = Support::Unknown;
  bool on_host = false;  // no kernel on the chip
  std::string dtypes;    // dtypes of the first input in the vendor's list, such as fp16|fp32; "" if it names none
};
OperatorRule rule_of(const std::string& name, const std::string& overload);
// Returns name and overload of each operator with a kernel on the chip.
std::vector<std::pair<std::string, std::string>> native_operators();
void register_native_operators();

}  // namespace npu_train::sim
