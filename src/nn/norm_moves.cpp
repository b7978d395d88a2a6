#include "npu_train/nn/norm_moves.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "npu_train/base/host_numbers.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

at::Tensor in_fp64(const at::Tensor& t) { return t.detach().to(at::kCPU, at::kDouble); }

std::vector<double> added_by(const NormMove& move, const at::Tensor& after) {
  return host_numbers(in_fp64(after) - in_fp64(move.before) * move.keep);
}

}  // namespace

void NormMoves::on_norm(const Statistics& s) {
  if (!s.momentum) return;
  for (const auto& running : {s.mean, s.variance})
    if (running.defined()) own_.updates().push_back({running, running.detach().clone(), 1 - *s.momentum, {}});
}

std::vector<NormMove> NormMoves::take() {
  const at::NoGradGuard no_grad;
  auto moves = std::exchange(own_.updates(), {});
  for (size_t i = 0; i < moves.size(); ++i) {
    if (!moves[i].added.empty()) continue;
    at::Tensor after = moves[i].running;  // value after the update, unless the layer ran again
    for (size_t next = i + 1; next < moves.size(); ++next)
      if (moves[next].running.is_same(moves[i].running)) {
        after = moves[next].before;
        break;
      }
    moves[i].added = added_by(moves[i], after);
  }
  return moves;
}

void move_norm(const at::Tensor& running, double keep, const std::vector<double>& added) {
  check(running.numel() == static_cast<int64_t>(added.size()), ErrorKind::Peer, "running statistics",
        "a rank has another number of channels; hint: all ranks must run the same program with the same model");
  const auto content = running.data();  // bypasses the version counter, which autograd may check
  if (content.is_cpu() && content.scalar_type() == at::kFloat && content.is_contiguous()) return move_running(content, keep, added);
  content.copy_((in_fp64(content) * keep).add_(at::tensor(added, at::kDouble)));
}

}  // namespace npu_train::detail
