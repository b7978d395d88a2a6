#include <ATen/CPUGeneratorImpl.h>

#include <fstream>

#include "device/builtin_backends.hpp"
#include "device/cpu/cpu_features.hpp"
#include "npu_train/core/host.hpp"

namespace npu_train {
namespace detail {
namespace {

int64_t machine_memory() {
  const auto total = kib_value(read_small_file("/proc/meminfo"), "MemTotal"), limit = cgroup_limits().memory;
  return limit && (!total || *limit < *total) ? *limit : total.value_or(-1);
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
    const auto resident = kib_value(status, "VmRSS").value_or(-1);
    return {.allocated = resident, .peak = kib_value(status, "VmHWM").value_or(-1), .reserved = resident, .total = machine_memory()};
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

int64_t host_peak_rss() { return kib_value(detail::read_small_file("/proc/self/status"), "VmHWM").value_or(-1); }

}  // namespace npu_train
