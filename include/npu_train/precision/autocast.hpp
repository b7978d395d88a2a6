/// Automatic casting of operators to a low precision within a scope, like torch.autocast in Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/device/device.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/fp32_ops.hpp"

namespace npu_train {

/// In its scope, operators of `device` that benefit from low precision (convolutions, linear layers, matrix products, attention) run in
/// `dtype` on this thread, whatever the dtype of their inputs. Parameters keep their dtype.
///
///   {
///     npu_train::Autocast autocast(device, at::kBFloat16);
///     loss = loss_fn(model->forward(x), y);
///   }
///   loss.backward();   // outside: the backward runs in the dtypes of the forward by itself
///
/// Regions nest. A disabled region inside an enabled one computes in the dtype of its inputs: cast them, because an earlier layer may
/// return bf16. An exception that leaves the region restores the previous state. Casts of fp32 leaf tensors are cached until the outermost
/// region ends, so a changed weight takes effect in the next outermost region.
///
/// Operators that accumulate in fp32: on CUDA, softmax, layer_norm, losses, norms and exp/log/pow are computed in fp32. Autocast on a CPU
/// leaves gelu, softmax and layer_norm in the low precision of their inputs (the kernels accumulate in fp32 and round the result);
/// batch_norm keeps fp32 statistics everywhere. `fp32_ops` adds operators that compute in fp32. A nested region does not inherit them.
///
/// A CPU without fast kernels for `dtype` emulates it (see emulation.hpp) unless `cpu_low_precision` selects otherwise; other devices
/// ignore that argument.
class Autocast {
 public:
  /// Error(Usage) for a dtype other than fp16 and bf16 (for fp32, set `enabled` to false).
  explicit Autocast(const Device& device, at::ScalarType dtype, bool enabled = true, bool cache_enabled = true,
                    CpuLowPrecision cpu_low_precision = CpuLowPrecision::Auto, const Fp32Ops& fp32_ops = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType type_;
  bool enabled_before_;
  at::ScalarType dtype_before_;
  bool cache_before_;
  std::optional<at::ScalarType> emulated_before_;
  Fp32Ops fp32_ops_before_;
};

/// The autocast regions of this thread, captured so that a recomputation or another thread can enter them again.
class AutocastState {
 public:
  /// Captures the current state.
  AutocastState();

  class Scope;

 private:
  static constexpr std::array kTypes = {c10::DeviceType::CPU, c10::DeviceType::CUDA, c10::DeviceType::PrivateUse1};
  struct OfType {
    bool enabled;
    at::ScalarType dtype;
    Fp32Ops fp32_ops;
  };
  void enter() const;

  std::array<OfType, kTypes.size()> types_;
  bool cache_;
  std::optional<at::ScalarType> emulated_;
};

/// Enters the regions of `state`; its destructor restores the thread's previous state.
class AutocastState::Scope {
 public:
  explicit Scope(const AutocastState& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AutocastState before_;
};

// Parts of a forward that compute in fp32 inside a low-precision region (`amp.fp32_modules`). An Autocast inside such a part returns to
// low precision.

/// A region without autocast. Operators compute in the dtype of their inputs, so the inputs must be cast first:
///
///   at::Tensor forward(const at::Tensor& x) {
///     npu_train::Fp32Region region(device);
///     return head->forward(region.in(x));   // fp32 in, fp32 out
///   }
class Fp32Region {
 public:
  explicit Fp32Region(const Device& device) : autocast_(device, at::kBFloat16, /*enabled=*/false) {}
  /// Casts fp16 and bf16 tensors to fp32 and returns other tensors unchanged. Differentiable.
  at::Tensor in(const at::Tensor& x) const;

 private:
  Autocast autocast_;
};

/// Returns whether the module or parameter at the dotted path `name` belongs to one of `modules` ("head" covers "head" and "head.weight"
/// but not "header.weight"; "" covers everything). "*" matches any characters within one part: "layer*.0", "encoder.layers.*".
bool in_modules(const std::string& name, const std::vector<std::string>& modules);

/// `amp.fp32_modules`, and its exceptions, `amp.low_precision_modules`.
struct AmpModules {
  std::vector<std::string> fp32{};
  std::vector<std::string> low{};

  /// Returns whether the module or parameter `name` stays in fp32. The longest path from `name` upwards that matches an entry decides; if
  /// it matches both lists, `low` wins.
  bool keeps_fp32(const std::string& name) const;
  /// Returns whether `low` names the module `name` itself, not only a parent. Only then are the fp32 parameters of a normalisation layer
  /// cast.
  bool casts(const std::string& name) const;
  /// Throws Error(Usage) for an entry that is in both lists.
  void check() const;
};

}  // namespace npu_train
