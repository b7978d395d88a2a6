#include "precision_validator_judge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/abs.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/max.h>
#include <ATen/ops/where.h>

#include "npu_train/tools/align/pair_metrics.hpp"

namespace npu_train::detail {

double Verdict::excess() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (nonfinite_mismatch > nonfinite_allowed) return kInfinity;
  if (max_diff == 0) return 0;
  const double by_elements = allowed > 0 ? max_diff / allowed : kInfinity;
  return norm_allowed > 0 ? std::min(by_elements, norm_diff / norm_allowed) : by_elements;
}

double largest(const at::Tensor& value) {
  if (value.numel() == 0) return 0;
  const auto magnitude = value.to(at::kFloat).abs();
  return magnitude.where(magnitude.isfinite(), at::Scalar(0)).max().item<double>();
}

Verdict judge(const at::Tensor& a, const at::Tensor& b, const at::Tensor& shaken, const Tolerance& tolerance, JudgeBy by, double scale) {
  const auto metrics = compare_tensors(a, b);
  Verdict out;
  out.max_diff = metrics.max_abs;
  out.mean_diff = metrics.mean_abs;
  out.nonfinite_mismatch = metrics.nonfinite_mismatch;
  out.reference_max = largest(b);
  out.allowed = tolerance.atol * scale + tolerance.rtol * out.reference_max;
  out.norm_diff = metrics.euclidean;
  if (by == JudgeBy::ElementsOrNorm) out.norm_allowed = tolerance.rtol * metrics.norm_b;
  if (!shaken.defined()) return out;
  const auto moved = compare_tensors(shaken, b);
  out.allowed = std::max(out.allowed, moved.max_abs);
  out.nonfinite_allowed = moved.nonfinite_mismatch;
  if (by == JudgeBy::ElementsOrNorm) out.norm_allowed = std::max(out.norm_allowed, moved.euclidean);
  return out;
}

}  // namespace npu_train::detail
