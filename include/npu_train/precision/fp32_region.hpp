/// Part of a forward that computes in fp32 inside a low-precision one: `amp.fp32_modules`.
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
/// "header.weight"; "" covers everything).
bool in_modules(const std::string& name, const std::vector<std::string>& modules);

}  // namespace npu_train
