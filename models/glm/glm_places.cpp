#include "models/glm/glm_places.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

namespace npu_train::detail {
namespace {

constexpr double kTheta = 10000;

// Counts the true elements of each row, [N, T] to [N, 1]. With cumsum, because NPUs do not sum int64.
at::Tensor count_of(const at::Tensor& rows) { return rows.cumsum(1).select(1, -1).unsqueeze(1); }

// Returns the index [N, 1] of the first `token` in the prefix [N, T]; the prefix's `length` [N, 1] if it has none.
at::Tensor place_in_prefix(const at::Tensor& tokens, int64_t token, const at::Tensor& prefix, const at::Tensor& length) {
  const at::Tensor from_it_on = tokens.eq(token).logical_and(prefix).cumsum(1).gt(0).logical_and(prefix);
  return length - count_of(from_it_on);
}

}  // namespace

GlmPlaceTable::GlmPlaceTable(const GlmOptions& o) : bos_(o.bos_token), gmask_(o.gmask_token), mask_(o.mask_token) {
  const int64_t half = o.dim / o.heads / 2;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  // The published network was trained with fp16 frequencies: at position 2000, exact ones would rotate by up to half a radian more.
  const at::Tensor frequencies = at::pow(kTheta, -at::arange(0, half, 2, fp32) / static_cast<double>(half)).to(at::kHalf).to(at::kFloat);
  const at::Tensor angles = at::outer(at::arange(o.context + 1, fp32), frequencies);
  cos_ = angles.cos();
  sin_ = angles.sin();
}

std::pair<at::Tensor, at::Tensor> GlmPlaceTable::tables(at::Device device) const {
  const std::lock_guard lock(mutex_);
  if (cos_.device() != device) cos_ = cos_.to(device), sin_ = sin_.to(device);
  return {cos_, sin_};
}

at::Tensor GlmPlaceTable::first_positions(const at::Tensor& tokens, const at::Tensor& started, const at::Tensor& prefix) const {
  const at::Tensor length = count_of(prefix);
  const at::Tensor gmask = place_in_prefix(tokens, gmask_, prefix, length), mask = place_in_prefix(tokens, mask_, prefix, length);
  const at::Tensor last = (length - 1).clamp_min(0);
  const at::Tensor gap = at::where(gmask.lt(length), gmask, at::where(mask.lt(length), mask, last));
  return at::where(started, gap, at::arange(tokens.size(1), tokens.options()));
}

GlmPlaces GlmPlaceTable::operator()(const at::Tensor& tokens, int64_t before) const {
  const int64_t all = tokens.size(1), queries = all - before;
  const at::Tensor started = tokens.eq(bos_).cumsum(1).gt(0);  // true from the first bos on
  const at::Tensor prefix = started.logical_not().logical_and(started.select(1, -1).unsqueeze(1));
  const at::Tensor positions = at::stack({first_positions(tokens, started, prefix), started.cumsum(1)}, -1);
  const at::Tensor asked = before == 0 ? positions : positions.narrow(1, before, queries);
  const auto [cos, sin] = tables(tokens.device());
  const at::Tensor keys = at::arange(all, tokens.options());
  const at::Tensor places = before == 0 ? keys : keys.narrow(0, before, queries);
  const at::Tensor earlier = keys.unsqueeze(0).le(places.unsqueeze(1));
  return {.visible = earlier.unsqueeze(0).logical_or(prefix.unsqueeze(1)).unsqueeze(1),
          .cos = at::embedding(cos, asked).unsqueeze(1),
          .sin = at::embedding(sin, asked).unsqueeze(1)};
}

at::Tensor rotated_in_halves(const at::Tensor& x, const GlmPlaces& places) {
  const int64_t quarter = x.size(3) / 4;
  const auto parts = x.unflatten(3, {2, 2, quarter}).unbind(4);
  const at::Tensor &a = parts[0], &b = parts[1];
  return at::stack({a * places.cos - b * places.sin, b * places.cos + a * places.sin}, 4).flatten(3).to(x.scalar_type());
}

}  // namespace npu_train::detail
