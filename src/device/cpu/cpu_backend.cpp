#include <ATen/CPUGeneratorImpl.h>

#include <fstream>

#include "device/builtin_backends.hpp"
#include "device/cpu/cpu_features.hpp"
#include "npu_train/core/cgroup.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace detail {
namespace {

int64_t machine_memory() {
  const int64_t total = proc_kib(read_small_file("/proc/meminfo"), "MemTotal");
  const auto limit = cgroup_limits().memory;
  return limit && (total < 0 || *limit < total) ? *limit : total;
}

class CpuBackend final : public DeviceBackend {
 public:
  std::string name() const override { return "cpu"; }
  bool is_available() const override { return true; }
  std::string why_not() const override { return ""; }
  int count() const override { return 1; }
  void synchronize(const Device&) const override {}

  MemoryStats memory(const Device&) const override {
    const auto status = read_small_file("/proc/self/status");
    const int64_t resident = proc_kib(status, "VmRSS");
    return {.allocated = resident, .peak = proc_kib(status, "VmHWM"), .reserved = resident, .total = machine_memory()};
  }

  void reset_peak(const Device&) const override { std::ofstream("/proc/self/clear_refs") << "5"; }

  Capabilities capabilities(const Device&) const override {
    return {.native_bf16 = cpu_features().bf16, .native_fp16 = cpu_features().fp16, .all_fused_optimizers = true, .fp64 = true};
  }

  at::Generator generator(const Device&) const override { return at::detail::getDefaultCPUGenerator(); }
};

}  // namespace

const DeviceBackend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace detail

int64_t host_peak_rss() { return detail::proc_kib(detail::read_small_file("/proc/self/status"), "VmHWM"); }

}  // namespace npu_train
