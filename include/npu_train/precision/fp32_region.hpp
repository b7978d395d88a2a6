/// Part of a forward that computes in fp32 inside a low-precision one: `amp.fp32_modules`. An Autocast inside such a region is an
/// exception from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "npu_train/precision/autocast.hpp"

namespace npu_train {

/// An autocast-free region. Operators compute in the dtype of their inputs, so the inputs are cast first:
///
///   at::Tensor forward(const at::Tensor& x) {
///     npu_train::Fp32Region region(device);
///     return head->forward(region.in(x));   // fp32 in, fp32 out
///   }
class Fp32Region {
 public:
  explicit Fp32Region(const Device& device) : autocast_(device, at::kBFloat16, /*enabled=*/false) {}
  /// `x` in fp32 when it is fp16 or bf16, else `x`. Gradients flow through.
  at::Tensor in(const at::Tensor& x) const;

 private:
  Autocast autocast_;
};

/// Whether the module or parameter at the dotted path `name` belongs to one of `modules` ("head" covers "head" and "head.weight" but not
/// "header.weight"; "" covers everything). A * matches any characters inside one part: "layer*.0", "encoder.layers.*".
bool in_modules(const std::string& name, const std::vector<std::string>& modules);

/// `amp.fp32_modules` and the exceptions from it, `amp.low_precision_modules`.
struct AmpModules {
  std::vector<std::string> fp32{};
  std::vector<std::string> low{};

  /// Whether the module or parameter `name` is fp32 by these lists. Of `name` and the paths above it, the longest that matches an entry
  /// decides; if both lists match it, the exception does.
  bool keeps_fp32(const std::string& name) const;
  /// Whether `low` names the module `name` itself, not only one above: only then does a normalisation layer lose its fp32 parameters.
  bool casts(const std::string& name) const;
  /// Error(Usage) for an entry of both lists.
  void check() const;
};

}  // namespace npu_train
