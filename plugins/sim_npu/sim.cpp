#include "sim.hpp"
#include "npu_train/core/text.hpp"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

namespace npu_train::sim {

Sim& sim() {
  static auto* one = new Sim;  // leaked: tensors may outlive static objects
  return *one;
}

namespace {

std::string start(const npu_train_sim_options& options) {
  if (sim().devices > 0) return "the simulator is already running; a process can have only one, with the options of its start";
  if (options.devices < 1 || options.devices > kMostDevices) return str_cat(options.devices, " devices; allowed: 1 to ", kMostDevices);
  if (options.hbm_bytes < 1) return str_cat(options.hbm_bytes, " bytes of memory; allowed: at least 1");
  try {
    c10::register_privateuse1_backend("npu");
    register_hooks();
    register_native_operators();
  } catch (const c10::Error& e) {
    return std::string("this process has another PrivateUse1 device: ") + e.what_without_backtrace();
  }
  Sim& s = sim();
  s.soc = options.soc;
  s.hbm_bytes = options.hbm_bytes;
  s.saturate = options.saturate != 0;
  s.bf16 = options.bf16 != 0;
  s.unsupported = options.unsupported;
  s.warn = options.warn;
  s.devices = options.devices;
  return "";
}

}  // namespace
}  // namespace npu_train::sim

using npu_train::sim::sim;

int32_t npu_train_sim_abi() { return NPU_TRAIN_SIM_ABI; }

const char* npu_train_sim_start(const npu_train_sim_options* options) {
  thread_local std::string wrong;
  wrong = npu_train::sim::start(*options);
  return wrong.empty() ? nullptr : wrong.c_str();
}

void npu_train_sim_read_counters(npu_train_sim_counters* out) {
  const auto& s = sim();
  *out = {s.ops, s.cpu_fallbacks, s.recompilations, s.host_reads, s.host_read_bytes};
}
