#include "npu_train/optim/clip.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

// Foreach kernels are fused over tensors of one device and dtype.
std::vector<std::vector<at::Tensor>> grouped(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> out;
  std::map<std::pair<std::string, at::ScalarType>, size_t> index;
  for (const auto& t : tensors) {
    if (!out.empty() && out.back().front().device() == t.device() && out.back().front().scalar_type() == t.scalar_type()) {
      out.back().push_back(t);
      continue;
    }
    const auto [at, added] = index.try_emplace({t.device().str(), t.scalar_type()}, out.size());
    if (added) out.emplace_back();
    out[at->second].push_back(t);
  }
  return out;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> out;
  for (const auto& p : parameters)
    if (p.grad().defined()) out.push_back(p.grad());
  return out;
}

void check_gradients(const std::vector<at::Tensor>& gradients, const char* where, bool takes_complex) {
  for (const auto& g : gradients) {
    check(g.layout() == at::kStrided, ErrorKind::Usage, where, "a gradient of shape ", g.sizes(),
          " is sparse; allowed: dense gradients; hint: use a dense embedding, or leave that parameter out");
    check(takes_complex || !g.is_complex(), ErrorKind::Usage, where, "a gradient of shape ", g.sizes(), " is ", g.scalar_type(),
          "; allowed: real numbers, which can be compared; hint: clip_grad_norm_");
    check(at::has_internal_overlap(g) != at::MemOverlap::Yes, ErrorKind::Usage, where, "several elements of a gradient of shape ",
          g.sizes(), " share one place in memory; hint: assign an expanded gradient as .contiguous()");
  }
}

using Groups = std::vector<std::vector<at::Tensor>>;

// The norm of all gradients, in fp64 if one of them is.
at::Tensor total_norm(const Groups& groups, const at::Device& home, double norm_type) {
  std::vector<at::Tensor> norms;
  auto type = at::kFloat;
  for (const auto& group : groups) {
    const bool low = group.front().scalar_type() == at::kHalf || group.front().scalar_type() == at::kBFloat16;
    for (auto& n : at::_foreach_norm(group, norm_type, low ? std::optional(at::kFloat) : std::nullopt)) norms.push_back(std::move(n));
    if (norms.back().scalar_type() == at::kDouble) type = at::kDouble;
  }
  if (norms.empty()) return at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(home));
  for (auto& n : norms) n = n.to(home, type, /*non_blocking=*/true);
  return std::isinf(norm_type) ? at::stack(norms).amax() : at::stack(norms).norm();
}

// Squares may overflow where the norm does not: then of the gradients divided by the largest.
at::Tensor norm_without_overflow(const Groups& groups, const at::Device& home) {
  const auto largest = total_norm(groups, home, std::numeric_limits<double>::infinity());
  if (std::isinf(largest.item<double>())) return largest;
  Groups small;
  for (const auto& group : groups) small.push_back(at::_foreach_div(group, largest.to(group.front().device())));
  return total_norm(small, home, 2) * largest;
}

at::Tensor checked_norm(const Groups& groups, const at::Device& home, double norm_type, const char* where) {
  check(norm_type == 2 || std::isinf(norm_type), ErrorKind::Usage, where, "norm_type is ", norm_type, "; it must be 2 or infinity");
  for (const auto& group : groups) check_gradients(group, where, /*takes_complex=*/true);
  const c10::NoGradGuard no_grad;
  const auto norm = total_norm(groups, home, norm_type);
  if (home.is_cpu() && norm_type == 2 && std::isinf(norm.item<double>())) return norm_without_overflow(groups, home);
  return norm;
}

void check_max_norm(double max_norm, const char* where) {
  check(max_norm > 0, ErrorKind::Usage, where, "max_norm is ", max_norm, "; it must be positive");
}

void scale_to_norm(const Groups& groups, double max_norm, const at::Tensor& norm) {
  const c10::NoGradGuard no_grad;
  const auto factor = (norm + 1e-6).reciprocal().mul_(max_norm).clamp_max_(1.0);
  if (factor.is_cpu() && factor.item<double>() == 1) return;  // reading is free here, a pass over memory is not
  for (const auto& group : groups) at::_foreach_mul_(group, factor.to(group.front().device()));
}

at::Tensor clip_norm(const std::vector<at::Tensor>& gradients, const at::Device& home, double max_norm, double norm_type,
                     const NormReduction& reduce) {
  check_max_norm(max_norm, "clip_grad_norm_");
  const auto groups = grouped(gradients);
  auto norm = checked_norm(groups, home, norm_type, "clip_grad_norm_");
  if (reduce) {
    const c10::NoGradGuard no_grad;
    auto value = std::isinf(norm_type) ? norm.clone() : norm.square();
    reduce(value);
    norm = std::isinf(norm_type) ? value : value.sqrt();
  }
  scale_to_norm(groups, max_norm, norm);
  return norm;
}

void clip_value_of(const std::vector<at::Tensor>& gradients, double clip_value) {
  check(clip_value > 0, ErrorKind::Usage, "clip_grad_value_", "clip_value is ", clip_value, "; it must be positive");
  check_gradients(gradients, "clip_grad_value_", /*takes_complex=*/false);
  const c10::NoGradGuard no_grad;
  for (const auto& group : grouped(gradients)) {
    at::_foreach_clamp_min_(group, -clip_value);
    at::_foreach_clamp_max_(group, clip_value);
  }
}

at::Device home_of(const std::vector<at::Tensor>& gradients, const at::Device& otherwise) {
  return gradients.empty() ? otherwise : gradients.front().device();
}

}  // namespace

at::Tensor clip_grad_norm_(const ParameterSet& parameters, double max_norm, double norm_type, const NormReduction& reduce) {
  const auto gradients = parameters.grads();
  const auto home = parameters.empty() ? at::Device(at::kCPU) : parameters[0].value.device();
  return translated("clip_grad_norm_", [&] { return clip_norm(gradients, home_of(gradients, home), max_norm, norm_type, reduce); });
}

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type, const NormReduction& reduce) {
  const auto gradients = gradients_of(parameters);
  const auto home = parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
  return translated("clip_grad_norm_", [&] { return clip_norm(gradients, home_of(gradients, home), max_norm, norm_type, reduce); });
}

at::Tensor grad_norm(const ParameterSet& parameters, double norm_type) {
  const auto gradients = parameters.grads();
  const auto home = parameters.empty() ? at::Device(at::kCPU) : parameters[0].value.device();
  return translated("grad_norm", [&] { return checked_norm(grouped(gradients), home_of(gradients, home), norm_type, "grad_norm"); });
}

void clip_grads_with_norm_(const ParameterSet& parameters, double max_norm, const at::Tensor& norm) {
  translated("clip_grads_with_norm_", [&] {
    check_max_norm(max_norm, "clip_grads_with_norm_");
    const auto gradients = parameters.grads();
    check_gradients(gradients, "clip_grads_with_norm_", /*takes_complex=*/true);
    scale_to_norm(grouped(gradients), max_norm, norm);
  });
}

void clip_grad_value_(const ParameterSet& parameters, double clip_value) {
  translated("clip_grad_value_", [&] { clip_value_of(parameters.grads(), clip_value); });
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  translated("clip_grad_value_", [&] { clip_value_of(gradients_of(parameters), clip_value); });
}

}  // namespace npu_train
