// When two tensors of a validation agree.
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
  double norm_diff = 0, norm_allowed = -1;  // L2 norm of a - b; not negative: it may speak for a tensor whose max_diff exceeds
  bool passed() const { return (max_diff <= allowed || as_a_whole()) && nonfinite_mismatch <= nonfinite_allowed; }
  bool as_a_whole() const { return norm_diff <= norm_allowed; }
  // How near it is to failing, to find the worst of several.
  double excess() const;
};

// Largest magnitude of the finite elements; 0 if there is none.
double largest(const at::Tensor& value);

enum class JudgeBy { Elements, ElementsOrNorm };

// The rule of precision_validator.hpp on tensors of the host. `shaken` is b', undefined where no noise is measured. `scale`: factor of
// atol where all values of the kind are smaller than 1, as in align/compare.hpp.
Verdict judge(const at::Tensor& a, const at::Tensor& b, const at::Tensor& shaken, const Tolerance& tolerance,
              JudgeBy by = JudgeBy::Elements, double scale = 1);

}  // namespace npu_train::detail
