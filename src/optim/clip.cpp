#include "npu_train/optim/clip.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "npu_train/core/error.hpp"
#include "optim/gradient_squares.hpp"

namespace npu_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The parameters that have a gradient, and their gradients.
struct Gradients {
  explicit Gradients(const std::vector<at::Tensor>& all) : home(all.empty() ? at::Device(at::kCPU) : all.front().device()) {
    for (const auto& p : all) {
      if (!p.grad().defined()) continue;
      parameters.push_back(p);
      gradients.push_back(p.grad());
    }
    if (!gradients.empty()) home = gradients.front().device();
  }
  std::vector<at::Tensor> parameters, gradients;
  at::Device home;  // device of the norm
};

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

void check_for_norm(const Gradients& all, double norm_type, const char* where) {
  check(norm_type == 2 || std::isinf(norm_type), ErrorKind::Usage, where, "norm_type is ", norm_type, "; it must be 2 or infinity");
  check_gradients(all.gradients, where, /*takes_complex=*/true);
}

SquaredNorm squares_of(const Gradients& all) {
  std::vector<at::Tensor> numbers;
  for (size_t i = 0; i < all.gradients.size(); ++i) numbers.push_back(detail::in_memory_order(all.parameters[i], all.gradients[i]));
  return detail::squared_norm(numbers, all.home);
}

// Returns the largest absolute value, in fp64 if a gradient is fp64.
at::Tensor largest_of(const Gradients& all) {
  std::vector<at::Tensor> norms;
  auto type = at::kFloat;
  std::vector<at::Tensor> gradients;  // gradients without empty slices, whose largest value is undefined
  for (const auto& g : all.gradients)
    if (g.numel() > 0) gradients.push_back(g);
  for (const auto& group : detail::grouped(gradients)) {
    const bool low = group.front().scalar_type() == at::kHalf || group.front().scalar_type() == at::kBFloat16;
    for (auto& n : at::_foreach_norm(group, kInfinity, low ? std::optional(at::kFloat) : std::nullopt)) norms.push_back(std::move(n));
    if (norms.back().scalar_type() == at::kDouble) type = at::kDouble;
  }
  if (norms.empty()) return at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(all.home));
  for (auto& n : norms) n = n.to(all.home, type, /*non_blocking=*/true);
  return at::stack(norms).amax();
}

void check_max_norm(double max_norm, const char* where) {
  check(max_norm > 0, ErrorKind::Usage, where, "max_norm is ", max_norm, "; it must be positive");
}

void scale_to_norm(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm) {
  const c10::NoGradGuard no_grad;
  const auto factor = (norm + 1e-6).reciprocal().mul_(max_norm).clamp_max_(1.0);
  if (factor.is_cpu() && factor.item<double>() == 1) return;  // on a CPU, reading the factor is free, but a pass over memory is not
  for (const auto& group : detail::grouped(gradients)) at::_foreach_mul_(group, factor.to(group.front().device()));
}

// Returns the norm over the gradients of all ranks.
at::Tensor norm_over_ranks(const Gradients& all, double norm_type, const NormReduction& reduce) {
  const c10::NoGradGuard no_grad;
  if (std::isinf(norm_type)) {
    auto largest = largest_of(all);
    if (reduce) reduce(largest);
    return largest;
  }
  auto squares = squares_of(all);
  if (reduce) reduce(squares.parts);
  return norm_of(squares);
}

at::Tensor clip_norm(const Gradients& all, double max_norm, double norm_type, const NormReduction& reduce) {
  check_max_norm(max_norm, "clip_grad_norm_");
  check_for_norm(all, norm_type, "clip_grad_norm_");
  const auto norm = norm_over_ranks(all, norm_type, reduce);
  scale_to_norm(all.gradients, max_norm, norm);
  return norm;
}

void clip_value_of(const std::vector<at::Tensor>& gradients, double clip_value) {
  check(clip_value > 0, ErrorKind::Usage, "clip_grad_value_", "clip_value is ", clip_value, "; it must be positive");
  check_gradients(gradients, "clip_grad_value_", /*takes_complex=*/false);
  const c10::NoGradGuard no_grad;
  for (const auto& group : detail::grouped(gradients)) {
    at::_foreach_clamp_min_(group, -clip_value);
    at::_foreach_clamp_max_(group, clip_value);
  }
}

}  // namespace

at::Tensor clip_grad_norm_(const ParameterSet& parameters, double max_norm, double norm_type, const NormReduction& reduce) {
  for (const auto& p : parameters)  // without `reduce`, each rank would clip by its own norm
    check(reduce || p.value.numel() == p.whole().numel(), ErrorKind::Usage, "clip_grad_norm_", p.name, " is a slice of ", p.value.numel(),
          " of ", p.whole().numel(),
          " elements, and the norm is that of the slices of all ranks; hint: DistributedTraining, or the last "
          "argument, with GradientReducer::add_over_ranks");
  return translated("clip_grad_norm_", [&] { return clip_norm(Gradients(parameters.values()), max_norm, norm_type, reduce); });
}

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type, const NormReduction& reduce) {
  return translated("clip_grad_norm_", [&] { return clip_norm(Gradients(parameters), max_norm, norm_type, reduce); });
}

SquaredNorm squared_grad_norm(const ParameterSet& parameters) {
  return translated("squared_grad_norm", [&] {
    const Gradients all(parameters.values());
    check_for_norm(all, 2, "squared_grad_norm");
    const c10::NoGradGuard no_grad;
    return squares_of(all);
  });
}

at::Tensor grad_norm(const ParameterSet& parameters, double norm_type) {
  return translated("grad_norm", [&] {
    const Gradients all(parameters.values());
    check_for_norm(all, norm_type, "grad_norm");
    return norm_over_ranks(all, norm_type, {});
  });
}

void clip_grads_with_norm_(const ParameterSet& parameters, double max_norm, const at::Tensor& norm) {
  translated("clip_grads_with_norm_", [&] {
    check_max_norm(max_norm, "clip_grads_with_norm_");
    const auto gradients = parameters.grads();
    check_gradients(gradients, "clip_grads_with_norm_", /*takes_complex=*/true);
    scale_to_norm(gradients, max_norm, norm);
  });
}

void clip_grad_value_(const ParameterSet& parameters, double clip_value) {
  translated("clip_grad_value_", [&] { clip_value_of(parameters.grads(), clip_value); });
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  translated("clip_grad_value_", [&] { clip_value_of(Gradients(parameters).gradients, clip_value); });
}

}  // namespace npu_train
