// Decides whether two tensors of a validation agree.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "npu_train/tools/align/compare.hpp"

namespace npu_train::detail {

struct Verdict {
  double max_diff = 0, mean_diff = 0;
  double reference_max = 0;
  double allowed = 0;
  int64_t nonfinite_mismatch = 0, nonfinite_allowed = 0;
  double norm_diff = 0, norm_allowed = -1;  // L2 norm of a - b and its limit, an alternative to `allowed`; -1: none
  bool passed() const { return (max_diff <= allowed || as_a_whole()) && nonfinite_mismatch <= nonfinite_allowed; }
  bool as_a_whole() const { return norm_diff <= norm_allowed; }
  // Returns how close the tensor is to failing, to find the worst of several.
  double excess() const;
};

// Returns the largest magnitude of the finite elements; 0 if there is none.
double largest(const at::Tensor& value);

enum class JudgeBy { Elements, ElementsOrNorm };

// Applies the rule of precision_validator.hpp to tensors on the host. `shaken` is b', undefined if no noise is measured. `scale`: factor of
// atol, which is below 1 if all gradients are smaller than 1 (`s` in align/compare.hpp).
Verdict judge(const at::Tensor& a, const at::Tensor& b, const at::Tensor& shaken, const Tolerance& tolerance,
              JudgeBy by = JudgeBy::Elements, double scale = 1);

}  // namespace npu_train::detail
