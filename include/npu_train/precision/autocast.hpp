/// Automatic casting of operators to a low precision, for a scope: what torch.autocast is in Python.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>

#include "npu_train/device/device.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/fp32_ops.hpp"

namespace npu_train {

/// While it lives, operators of `device` that gain from it (convolutions, linear layers, matrix products, attention) run in `dtype` on
/// this thread, whatever the dtype of their inputs; parameters stay as they are.
///
///   {
///     npu_train::Autocast autocast(device, at::kBFloat16);
///     loss = loss_fn(model->forward(x), y);
///   }
///   loss.backward();   // outside: the backward runs in the dtypes of the forward by itself
///
/// Regions nest, a disabled region inside an enabled one computes in the dtype of its inputs (cast them: a layer before may have given
/// bf16), and an exception that leaves the region restores the state before it. Casts of fp32 leaf tensors are cached until the outermost
/// region ends; a weight that changes is seen by the next outermost region.
///
/// What accumulates in fp32: on CUDA softmax, layer_norm, losses, norms and exp/log/pow are computed in fp32. A CPU's autocast leaves gelu,
/// softmax and layer_norm in the low precision of their inputs (its kernels accumulate in fp32 and round the result); batch_norm keeps
/// its fp32 statistics everywhere. `fp32_ops` names more operators that compute in fp32; a region inside has its own, or none.
///
/// A CPU without units for `dtype` computes by emulation (see emulation.hpp) unless `cpu_low_precision` says otherwise; other devices
/// ignore it.
class Autocast {
 public:
  /// Error(Usage) for a dtype that is neither fp16 nor bf16 (fp32 means: `enabled` false).
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

/// Which regions this thread is in, to enter them again: in a recomputation, or on another thread.
class AutocastState {
 public:
  /// As it is now.
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

/// The thread in `state`; at its end it is back where it was.
class AutocastState::Scope {
 public:
  explicit Scope(const AutocastState& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AutocastState before_;
};

}  // namespace npu_train
