#include <dlfcn.h>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "device/ascend_chip.hpp"
#include "device/builtin_backends.hpp"
#include "device/float_status.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/plugin.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "sim_npu/sim_npu.h"

namespace npu_train {
namespace {

using detail::AscendChip;
constexpr const char* kFile = "libnpu_train_sim_npu.so";

// Ends the calling thread's OpenMP team. Calls the runtime that libtorch has loaded, because the compiler may link another one, or none.
void end_host_team() {
  constexpr int kSoft = 1;  // omp_pause_soft
  static auto* const pause = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));
  if (pause != nullptr) pause(kSoft);
}

const AscendChip& chip_of(const std::string& soc) {
  static const std::map<std::string, AscendChip> chips = {{"910A", *detail::ascend_chip("Ascend910A")},
                                                          {"910B1", *detail::ascend_chip("Ascend910B1")},
                                                          {"910B4", *detail::ascend_chip("Ascend910B4")},
                                                          {"310P", *detail::ascend_chip("Ascend310P3")}};
  const auto found = chips.find(soc);
  check(found != chips.end(), ErrorKind::Usage, "sim_npu.soc", "'", soc, "' is not one of 910A, 910B1, 910B4, 310P");
  return found->second;
}

bool saturates(const SimNpuOptions& o) {
  const AscendChip& chip = chip_of(o.soc);
  if (o.overflow_mode == "auto") return chip.saturates;
  const bool wanted = o.overflow_mode == "saturation";
  check(wanted == chip.saturates || chip.can_choose, ErrorKind::Usage, "sim_npu.overflow_mode", "a ", o.soc, " always ",
        chip.saturates ? "saturates" : "gives inf and NaN", "; allowed: auto, ", chip.saturates ? "saturation" : "inf_nan");
  return wanted;
}

// The process's simulator, once it is loaded.
struct Plugin {
  SimNpuOptions options;
  npu_train_sim_read_counters_fn* read_counters;
};

std::mutex plugin_mutex;
std::optional<Plugin> plugin;

void* open_sim_npu() {
  std::string tried;
  if (void* handle = open_plugin(kFile, tried)) return handle;
  throw Error(
      ErrorKind::Device, "device sim_npu", "the simulated NPU is not found: " + tried,
      "it is built with npu_train (NPU_TRAIN_BUILD_SIM_NPU) and installed to lib/npu_train; name its folder in NPU_TRAIN_PLUGIN_DIR");
}

template <class Fn>
Fn* symbol(void* handle, const char* name) {
  auto* found = reinterpret_cast<Fn*>(dlsym(handle, name));
  check(found != nullptr, ErrorKind::Device, "device sim_npu", kFile, " has no ", name, "; hint: it is of another version of npu_train");
  return found;
}

void start(const SimNpuOptions& o) {
  const auto bytes = o.hbm_bytes();
  const bool saturate = saturates(o);
  check(!c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1), ErrorKind::Device, "device sim_npu",
        "this process has loaded another NPU (torch_npu), and libtorch knows one a process");
  void* handle = open_sim_npu();
  const auto abi = symbol<npu_train_sim_abi_fn>(handle, "npu_train_sim_abi")();
  check(abi == NPU_TRAIN_SIM_ABI, ErrorKind::Device, "device sim_npu", kFile, " speaks version ", abi, ", this library ",
        NPU_TRAIN_SIM_ABI);
  const npu_train_sim_options given = {.soc = o.soc.c_str(),
                                       .devices = static_cast<int32_t>(o.devices),
                                       .hbm_bytes = bytes,
                                       .saturate = saturate ? 1 : 0,
                                       .bf16 = chip_of(o.soc).bf16 ? 1 : 0,
                                       .unsupported = o.unsupported_ops == "error"  ? 2
                                                      : o.unsupported_ops == "warn" ? 1
                                                                                    : 0,
                                       .warn = [](const char* text) { log_warning(text); }};
  const char* wrong = symbol<npu_train_sim_start_fn>(handle, "npu_train_sim_start")(&given);
  check(wrong == nullptr, ErrorKind::Device, "device sim_npu", wrong == nullptr ? "" : wrong);
  plugin = Plugin{o, symbol<npu_train_sim_read_counters_fn>(handle, "npu_train_sim_read_counters")};
}

class SimNpuBackend final : public GenericBackend {
 public:
  SimNpuBackend() : GenericBackend("sim_npu", c10::DeviceType::PrivateUse1) {}

  void activate() const override {
    const std::lock_guard<std::mutex> lock(plugin_mutex);
    if (!plugin) start({});
  }
  bool is_available() const override { return plugin.has_value(); }
  int count() const override { return is_available() ? GenericBackend::count() : 0; }
  std::string why_not() const override {
    return is_available() ? "" : "the simulated NPU is not started; hint: device: sim_npu, or start_sim_npu()";
  }
  Capabilities capabilities(const Device& device) const override {
    checked(device);
    return {.native_bf16 = chip_of(plugin->options.soc).bf16,
            .native_fp16 = true,
            .pinned_memory = true,
            .streams = true,
            .channels_last = true,
            .saturating_overflow = saturates(plugin->options),
            .computes_without_units = false,
            .skips_on_device = false,  // as in torch_npu
            .bf16_collectives = chip_of(plugin->options.soc).bf16,
            .ranks_by_powers_of_two = chip_of(plugin->options.soc).rings};
  }
  // Ends the caller's OpenMP team before the backward pass, and the backward pass's team after it. Autograd runs a device's backward pass
  // in a separate thread, where the simulator's kernels use another team. libgomp counts the threads of idle teams, too: if all threads
  // outnumber the processors, they sleep between loops instead of spinning, which costs a seventh of a ResNet-50 step.
  void backward(const at::Tensor& loss) const override {
    end_host_team();
    if (loss.requires_grad())
      loss.register_hook([](const at::Tensor&) { torch::autograd::Engine::get_default_engine().queue_callback([] { end_host_team(); }); });
    loss.backward();
  }
  bool overflow_flag(const Device& device) const override { return detail::float_status(checked(device)); }
  void clear_overflow_flag(const Device& device) const override { detail::clear_float_status(checked(device)); }
};

}  // namespace

int64_t SimNpuOptions::hbm_bytes() const {
  const auto bytes = parse_bytes(hbm);
  check(bytes && *bytes > 0, ErrorKind::Usage, "sim_npu.hbm", "'", hbm, "' is not a size such as 32GiB or 512MiB");
  return *bytes;
}

void start_sim_npu(const SimNpuOptions& options) {
  const std::lock_guard<std::mutex> lock(plugin_mutex);
  if (!plugin) return start(options);
  check(plugin->options == options, ErrorKind::Usage, "sim_npu", "the simulator of this process was started with other options");
}

SimNpuCounters sim_npu_counters() {
  const std::lock_guard<std::mutex> lock(plugin_mutex);
  check(plugin.has_value(), ErrorKind::Device, "sim_npu", "it was not started");
  npu_train_sim_counters c{};
  plugin->read_counters(&c);
  return {c.ops, c.cpu_fallbacks, c.recompilations, c.host_reads, c.host_read_bytes};
}

namespace detail {

const DeviceBackend& sim_npu_backend() {
  static const SimNpuBackend backend;
  return backend;
}

}  // namespace detail
}  // namespace npu_train
