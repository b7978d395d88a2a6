/// Operators that compute in fp32 inside a low-precision region: `amp.fp32_ops`.
#pragma once

#include <c10/core/DeviceType.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Names of ATen operators ("softmax", "gelu", "layer_norm") for an Autocast. Inside it they take inputs in fp16 and bf16 as fp32, run with
/// autocast off, and give fp32: what CUDA's autocast does for a list of its own (CastPolicy::fp32 in ATen/autocast_mode.h).
///
///   const npu_train::Fp32Ops ops({"softmax", "gelu"}, device);
///   npu_train::Autocast autocast(device, at::kBFloat16, true, true, npu_train::CpuLowPrecision::Auto, ops);
///
/// A name selects all overloads except those that write into an argument. Only operators that the program calls count: the softmax
/// inside scaled_dot_product_attention is not reached, and torch::nn::Linear calls addmm or matmul, not linear.
///
/// For each operator and type of device (cpu, cuda, sim_npu and npu) a kernel is registered for libtorch's autocast keys once per process,
/// at its first use. It acts on threads inside such a region; everywhere else the previous kernel runs. Copies share one set.
class Fp32Ops {
 public:
  Fp32Ops() = default;  ///< none
  /// Error(Usage) as check_fp32_ops().
  Fp32Ops(const std::vector<std::string>& names, const Device& device);

  const std::vector<std::string>& names() const;
  bool empty() const { return set_ == nullptr; }
  /// The names that any thread has called in a region so far: the program does not call the operators of the others.
  std::vector<std::string> met() const;

  struct Set;
  const Set* set() const { return set_.get(); }

 private:
  std::shared_ptr<const Set> set_;
};

/// Error(Usage) for a name that is no ATen operator, with the nearest one, and for operators that cannot be cast: those that take no
/// tensor, give a view of an input, write into one, or run in the backward pass.
void check_fp32_ops(const std::vector<std::string>& names);

/// Whether this thread is inside an Autocast of the CPU that computes `op` in fp32: for kernels that replace an operator without calling
/// it.
bool in_fp32_ops(std::string_view op);

}  // namespace npu_train
