#include "npu_train/nn/rank_gather.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "npu_train/base/host_numbers.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kRankGather = "gathered";

// Returns x unchanged, but multiplies its gradient by a factor.
class ScaledGradient : public torch::autograd::Function<ScaledGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, double factor) {
    ctx->saved_data["factor"] = factor;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    return {grads[0] * ctx->saved_data["factor"].toDouble(), at::Tensor()};
  }
};

std::vector<double> message_of(const at::Tensor& rows) {
  auto out = host_numbers(rows);
  out.insert(out.begin(), static_cast<double>(rows.size(1)));
  return out;
}

}  // namespace

GatheredRows gathered(const ForwardContext& context, const at::Tensor& own) {
  check(own.dim() == 2 && own.is_floating_point() && own.size(0) > 0 && own.size(1) > 0, ErrorKind::Usage, kRankGather, "the rows are ",
        c10::toString(own.scalar_type()), " ", own.sizes(), "; allowed: floating point, [n, features] of at least one row");
  const auto* ranks = context.ranks();
  if (ranks == nullptr) return {own, 0};
  const auto mine = message_of(own);
  const auto all = ranks->gather(mine);
  GatheredRows out;
  std::vector<at::Tensor> parts;
  int64_t total = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    const auto& of_rank = all[r];
    if (r == ranks->rank) out.first = total;
    if (of_rank.empty()) continue;
    check(of_rank[0] == mine[0] && (of_rank.size() - 1) % static_cast<size_t>(own.size(1)) == 0, ErrorKind::Peer, kRankGather, "rank ", r,
          " gave rows of ", of_rank[0], " features where this one gave ", mine[0],
          "; hint: all ranks must run the same program with the same model");
    const auto count = static_cast<int64_t>(of_rank.size() - 1) / own.size(1);
    parts.push_back(r == ranks->rank ? own
                                     : at::tensor(at::ArrayRef<double>(of_rank).slice(1), at::kDouble)
                                           .view({count, own.size(1)})
                                           .to(own.options().requires_grad(false)));
    total += count;
  }
  for (auto& part : parts)
    if (part.is_same(own)) part = ScaledGradient::apply(own, static_cast<double>(total) / static_cast<double>(own.size(0)));
  out.rows = at::cat(parts);
  return out;
}

}  // namespace npu_train
