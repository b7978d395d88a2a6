// Ascend NPUs through torch_npu. Uses libtorch's device-generic interface (GenericBackend) where possible, and adds the functions that
// torch_npu implements in Python. The entry points are those of torch_npu 2.11 to 2.14; none of this has run on an NPU yet (docs/npu.md).
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "device/ascend_chip.hpp"
#include "device/builtin_backends.hpp"
#include "device/float_status.hpp"
#include "device/npu/torch_npu.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train::detail {
namespace {

constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;
constexpr int kHbm = 1;  // ACL_HBM_MEM

std::mutex loading;
std::atomic<const TorchNpu*> loaded{nullptr};

bool can_take_over(const at::Tensor&, const at::Tensor&) { return true; }

// Registers the operator that module->to(device) calls for every parameter: libtorch has no implementation for PrivateUse1.
void let_modules_move() {
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::_has_compatible_shallow_copy_type", ""});
  if (op && op->hasKernelForDispatchKey(c10::DispatchKey::AutogradPrivateUse1)) return;
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(can_take_over));
}

// Starts the device and checks a computation, because a failed start may cause only a warning.
void start(const TorchNpu& npu) {
  const c10::Device device(kNpu, 0);
  double two = 0;
  try {
    if (npu.init) npu.init();
    two = at::ones({1}, at::TensorOptions().dtype(at::kFloat).device(device)).add_(1).cpu().item<double>();
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Device, "device npu", std::string("torch_npu is loaded, but the device does not start: ") + e.what(),
                "look whether `npu-smi info` lists the device as OK, whether another process holds it, and whether CANN and driver are in "
                "versions that fit each other",
                std::current_exception());
  }
  check(two == 2, ErrorKind::Device, "device npu", "torch_npu is loaded, but 1 + 1 gave ", two,
        "; hint: install CANN's operators for your chip, in the version that your torch_npu names");
}

// Shuts torch_npu down: without this call, CANN reports an error at the end of the process. Ignores exceptions, which a failed device
// causes. Uses a thread of its own, because exit() has already destroyed the thread-local objects of the calling thread, such as
// torch_npu's current stream.
void finalize() {
  const auto* guard = c10::impl::getDeviceGuardImpl(kNpu);
  try {
    std::thread([guard, device = guard->getDevice()] {
      try {
        guard->setDevice(device);
        loaded.load()->finalize();
      } catch (const std::exception& e) {
        log_warning(std::string("npu: ending the device failed: ") + e.what());
      }
    }).join();
  } catch (const std::exception& e) {
    log_warning(std::string("npu: the device is not ended: ") + e.what());
  }
}

class NpuBackend final : public GenericBackend {
 public:
  NpuBackend() : GenericBackend("npu", kNpu) {}

  bool may_be_there() const override { return is_available() || count_ascend_nodes() > 0; }
  int visible_count() const override { return count_visible_npus(); }
  bool is_available() const override { return loaded.load() != nullptr; }
  int count() const override { return is_available() ? GenericBackend::count() : 0; }
  std::string why_not() const override {
    return is_available() ? "" : "torch_npu is not loaded; device: npu loads it, or reports what is missing";
  }

  void activate() const override {
    const std::lock_guard<std::mutex> lock(loading);
    if (is_available()) return;
    check(!sim_npu_backend().is_available(), ErrorKind::Device, "device npu",
          "this process runs the simulated NPU, and libtorch knows one NPU a process; start another process");
    static TorchNpu npu;
    load_torch_npu(npu);
    check(GenericBackend::count() > 0, ErrorKind::Device, "device npu",
          "torch_npu is loaded but finds no NPU; hint: look whether `npu-smi info` lists one, whether /dev/davinci0 is there and readable "
          "for "
          "this user (in a container: mapped into it), and whether ASCEND_RT_VISIBLE_DEVICES hides it");
    start(npu);
    if (npu.finalize) {
      std::atexit(finalize);
      std::at_quick_exit(finalize);  // for end_process()
    }
    let_modules_move();
    loaded = &npu;
    log_info("npu: torch_npu " + (npu.path.empty() ? std::string("of the host program") : "from " + npu.path) + ", " +
             std::to_string(count()) + " devices, chip " + soc());
  }

  Capabilities capabilities(const Device& device) const override {
    checked(device);
    return {.native_bf16 = chip().bf16,
            .native_fp16 = true,
            .pinned_memory = true,
            .streams = true,
            .channels_last = false,
            .saturating_overflow = saturates(),
            .computes_without_units = false,
            .skips_on_device = false,  // torch_npu's fused optimizers ignore found_inf, or read it on the host
            .fused_sgd = chip().bf16,  // torch_npu's documentation names this operator only for chips with bf16
            .bf16_collectives = chip().bf16,
            .ranks_by_powers_of_two = chip().rings,
            .graphs = chip().graphs};
  }

  MemoryStats memory(const Device& device) const override {
    auto out = GenericBackend::memory(device);
    size_t free = 0, total = 0;
    const c10::DeviceGuard guard(checked(device));
    if (out.total < 0 && loaded.load()->memory_info != nullptr && loaded.load()->memory_info(kHbm, &free, &total) == 0)
      out.total = static_cast<int64_t>(total);
    return out;
  }

  at::Generator generator(const Device& device) const override {
    const auto index = checked(device).index();
    const auto own = loaded.load()->default_generator;
    return own != nullptr ? own(index) : GenericBackend::generator(device);
  }

  bool overflow_flag(const Device& device) const override { return float_status(checked(device)); }
  void clear_overflow_flag(const Device& device) const override { clear_float_status(checked(device)); }

 private:
  std::string soc() const {
    const auto ask = loaded.load()->soc_name;
    const char* name = ask != nullptr ? ask() : nullptr;
    return name != nullptr ? name : "";
  }

  AscendChip chip() const { return assumed_chip(soc()); }

  bool saturates() const {
    const auto& ask = loaded.load()->supports_inf_nan;
    if (!ask) return saturates_here(chip());
    return translated("device npu", [&] { return !ask(); });
  }
};

}  // namespace

const DeviceBackend& npu_backend() {
  static const NpuBackend backend;
  return backend;
}

}  // namespace npu_train::detail
