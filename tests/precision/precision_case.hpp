// Precisions and parameters for the tests of the modes.
#pragma once

#include "testing.hpp"

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/precision/precision.hpp"

namespace npu_train::testing {

inline const Device kCpu;

inline std::unique_ptr<Precision> make(const std::string& mode, GradScalerOptions scaler = {}) {
  return make_precision({.mode = mode, .grad_scaler = scaler, .fp32_modules = {}}, kCpu);
}

inline ParameterSet set_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  ParameterSet out;
  for (const auto& [name, t] : tensors) out.add({.name = name, .value = t});
  return out;
}

inline at::Tensor random_leaf(std::vector<int64_t> shape) { return at::randn(shape).set_requires_grad(true); }

inline void set_grad(const at::Tensor& t, const at::Tensor& g) { t.mutable_grad() = g; }

}  // namespace npu_train::testing
