#include "optim/gradient_squares.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "npu_train/device/backend.hpp"
#include "npu_train/kernels/block_squares.hpp"

namespace npu_train::detail {
namespace {

bool is_fp64(const at::Tensor& t) { return t.scalar_type() == at::kDouble; }

// Returns whether both are dense and store their elements in the same order.
bool same_order(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return false;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

// Calls fn(blocks) with the gradients' numbers as [n, 64] on their device, a limited number at a time. Each gradient starts a new block and
// is padded with zeros. The blocks are fp64 if the gradients are, otherwise fp32.
template <class Fn>
void for_blocks(const std::vector<at::Tensor>& gradients, const Fn& fn) {
  constexpr int64_t kAtOnce = int64_t{1} << 22;
  const auto options = gradients.front().options().dtype(is_fp64(gradients.front()) ? at::kDouble : at::kFloat);
  std::vector<at::Tensor> pieces;
  std::vector<int64_t> places;
  int64_t used = 0;
  const auto flush = [&] {
    const auto numbers = at::zeros({used}, options);
    std::vector<at::Tensor> targets;
    for (size_t i = 0; i < pieces.size(); ++i) targets.push_back(numbers.narrow(0, places[i], pieces[i].numel()));
    at::_foreach_copy_(targets, pieces);
    fn(numbers.view({-1, kSquaresBlock}));
    pieces.clear(), places.clear();
    used = 0;
  };
  for (const auto& gradient : gradients)
    for (int64_t first = 0, count = 0; first < gradient.numel(); first += count) {
      count = std::min(gradient.numel() - first, kAtOnce - used);
      pieces.push_back(gradient.narrow(0, first, count));
      places.push_back(used);
      used += (count + kSquaresBlock - 1) / kSquaresBlock * kSquaresBlock;
      if (used == kAtOnce) flush();
    }
  if (used > 0) flush();
}

// Returns the sums of squares [n] of the blocks, with additions in the order that kernels/block_squares.hpp defines.
at::Tensor block_sums(const at::Tensor& blocks) {
  const auto numbers = blocks.to(at::kDouble);
  auto sums = numbers * numbers;
  for (int64_t half = kSquaresBlock / 2; half > 0; half /= 2) sums = sums.narrow(1, 0, half) + sums.narrow(1, half, half);
  return sums.reshape({-1});
}

// Returns the rounded sum of squares, added in the order of the gradients, for devices without fp64.
at::Tensor rounded_parts(const std::vector<at::Tensor>& gradients, const at::Device& home, at::ScalarType dtype) {
  std::vector<at::Tensor> norms;
  for (const auto& group : grouped(gradients)) {
    const bool low = group.front().scalar_type() == at::kHalf || group.front().scalar_type() == at::kBFloat16;
    for (const auto& n : at::_foreach_norm(group, 2, low ? std::optional(at::kFloat) : std::nullopt))
      norms.push_back(n.to(home, dtype, /*non_blocking=*/true));
  }
  return at::stack(norms).square().sum().reshape({1});
}

}  // namespace

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

at::Tensor in_memory_order(const at::Tensor& parameter, const at::Tensor& gradient) {
  at::Tensor numbers = gradient.detach().resolve_conj().resolve_neg();
  if (!same_order(parameter, numbers)) numbers = at::empty_like(parameter.detach(), numbers.options()).copy_(numbers);
  numbers = numbers.as_strided({numbers.numel()}, {1});
  return numbers.is_complex() ? at::view_as_real(numbers).view({-1}) : numbers;
}

at::Tensor parts_by_operators(const std::vector<at::Tensor>& gradients) {
  at::Tensor parts;
  std::vector<at::Tensor> kinds[2];
  for (const auto& g : gradients) kinds[is_fp64(g) ? 1 : 0].push_back(g);
  for (const auto& kind : kinds) {
    if (kind.empty()) continue;
    for_blocks(kind, [&](const at::Tensor& blocks) {
      const auto more = parts_of(block_sums(blocks), is_fp64(blocks));
      parts = parts.defined() ? parts.add_(more) : more;
    });
  }
  return parts.defined() ? parts : parts_of(ExactSum()).to(gradients.front().device());
}

SquaredNorm squared_norm(const std::vector<at::Tensor>& gradients, const at::Device& home) {
  SquaredNorm out;
  if (std::any_of(gradients.begin(), gradients.end(), is_fp64)) out.dtype = at::kDouble;
  bool exact = has_fp64(home);
  std::map<std::string, std::vector<at::Tensor>> by_device;
  for (const auto& g : gradients) {
    exact = exact && has_fp64(g.device());
    by_device[g.device().str()].push_back(g);
  }
  if (!exact) {
    out.parts = gradients.empty() ? at::zeros({1}, at::TensorOptions().device(home)) : rounded_parts(gradients, home, out.dtype);
    return out;
  }
  for (const auto& [name, group] : by_device) {
    const auto parts = (group.front().is_cpu() ? parts_of(sum_of_squares(group)) : parts_by_operators(group)).to(home, true);
    out.parts = out.parts.defined() ? out.parts.add_(parts) : parts;
  }
  if (!out.parts.defined()) out.parts = parts_of(ExactSum()).to(home, true);
  return out;
}

}  // namespace npu_train::detail
