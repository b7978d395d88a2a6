/// Parts of a forward that compute in fp32 inside a low-precision region (`amp.fp32_modules`). An Autocast inside such a part returns to
/// low precision.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "npu_train/precision/autocast.hpp"

namespace npu_train {

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
