/// Operators that compute in fp32 inside a low-precision region: `amp.fp32_ops`.
#pragma once

#include <c10/core/DeviceType.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Names of ATen operators ("softmax", "gelu", "layer_norm") that an Autocast computes in fp32: inputs in fp16 and bf16 are cast to fp32,
/// the operator runs without autocast and returns fp32. CUDA's autocast does the same for a fixed list (CastPolicy::fp32 in
/// ATen/autocast_mode.h).
///
///   const npu_train::Fp32Ops ops({"softmax", "gelu"}, device);
///   npu_train::Autocast autocast(device, at::kBFloat16, true, true, npu_train::CpuLowPrecision::Auto, ops);
///
/// A name selects all overloads except those that write into an argument. It applies to operators that the program calls, not to their
/// parts: the softmax inside scaled_dot_product_attention is not affected, and torch::nn::Linear calls addmm or matmul, not linear.
///
/// For each operator and type of device (cpu, cuda, sim_npu and npu), the first use registers a kernel for libtorch's autocast key, once
/// per process. It acts on threads inside such a region; other threads use the previous kernel. Copies share one set.
class Fp32Ops {
 public:
  Fp32Ops() = default;  ///< Constructs an empty set.
  /// Error(Usage) as in check_fp32_ops().
  Fp32Ops(const std::vector<std::string>& names, const Device& device);

  const std::vector<std::string>& names() const;
  bool empty() const { return set_ == nullptr; }
  /// Returns the names that any thread has called in a region so far; the program has not called the others.
  std::vector<std::string> met() const;

  struct Set;
  const Set* set() const { return set_.get(); }

 private:
  std::shared_ptr<const Set> set_;
};

/// Throws Error(Usage) for a name that is not an ATen operator, with the nearest name, and for an operator that cannot be cast because it
/// takes no tensor, returns a view of an input, writes into an argument, or runs in the backward pass.
void check_fp32_ops(const std::vector<std::string>& names);

/// Returns the operators of a class of layers, which `amp.fp32_modules` lists next to paths: {"layer_norm"} for "LayerNorm". "BatchNorm"
/// and "BatchNorm2d" are the same: one operator computes all dimensions. "Softmax" includes scaled_dot_product_attention, so that the
/// softmax of an attention and its products compute in fp32. Empty for a name that is not a class.
std::vector<std::string> fp32_ops_of_class(const std::string& name);

/// Returns the names of all classes that fp32_ops_of_class() knows.
const std::vector<std::string>& fp32_classes();

/// Returns whether this thread is inside a CPU Autocast that computes `op` in fp32. Kernels that replace an operator without calling it
/// need this.
bool in_fp32_ops(std::string_view op);

}  // namespace npu_train
