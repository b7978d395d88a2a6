#include "npu_train/nn/norm_watch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <string_view>
#include <utility>

#include "npu_train/base/host_numbers.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::detail {
namespace {

thread_local NormWatch* innermost = nullptr;
thread_local std::pair<at::Tensor, at::Tensor> counted;  // the integer that add_ last changed, and its previous value

bool is_counter(const at::Tensor& t) { return t.defined() && t.dim() == 0 && t.scalar_type() == at::kLong; }

}  // namespace

NormWatch::NormWatch() : outer_(std::exchange(innermost, this)) {
  if (outer_ == nullptr)
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&NormWatch::on_start, nullptr).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

NormWatch::~NormWatch() {
  innermost = outer_;
  if (outer_ != nullptr) return;
  at::removeCallback(handle_);
  counted = {};
}

// batch_norm, instance_norm and npu_train's own kernel have running_mean and running_var as their fourth and fifth argument. A layer
// increments its batch counter with add_ just before the norm, so the last integer that add_ changed is its counter.
std::unique_ptr<at::ObserverContext> NormWatch::on_start(const at::RecordFunction& fn) {
  if (innermost == nullptr) return nullptr;  // this thread has inherited the callbacks, but has no watch
  const std::string_view name = fn.name();
  const auto inputs = arguments_of(fn);
  if (name == "aten::add_" && inputs[0].isTensor() && is_counter(inputs[0].toTensor()))
    counted = {inputs[0].toTensor(), inputs[0].toTensor().detach().clone()};
  const bool norm = name == "aten::batch_norm" || name == "aten::instance_norm" || name == "npu_train::batch_norm_act";
  if (!norm || inputs.size() < 5) return nullptr;
  const auto tensor = [&](size_t i) { return inputs[i].isTensor() ? inputs[i].toTensor() : at::Tensor(); };
  auto [counter, count] = std::exchange(counted, {});
  Statistics statistics{.mean = tensor(3), .variance = tensor(4), .counter = counter, .count = count};
  if (inputs.size() > 6 && inputs[5].isBool() && inputs[5].toBool()) statistics.momentum = inputs[6].toDouble();
  for (auto* watch = innermost; watch != nullptr; watch = watch->outer_) watch->on_norm(statistics);
  return nullptr;
}

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
