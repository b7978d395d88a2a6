#include "npu_train/nn/cross_entropy.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {
namespace {

constexpr const char* kCrossEntropy = "blocked_cross_entropy";
constexpr int64_t kBlock = int64_t{1} << 20;  // number of logits in a block, which is computed in fp32

// Calls fn(first, rows) for each block of rows of [tokens, classes].
template <class Fn>
void for_blocks(const at::Tensor& logits, const Fn& fn) {
  const int64_t tokens = logits.size(0), rows = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, logits.size(1)));
  for (int64_t first = 0; first < tokens; first += rows) fn(first, std::min(rows, tokens - first));
}

struct BlockedCrossEntropy : torch::autograd::Function<BlockedCrossEntropy> {
  // logits [tokens, classes], targets [tokens]
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets,
                            int64_t ignore_index, double smoothing) {
    const at::Tensor counts = targets.ne(ignore_index), classes = targets.masked_fill(counts.logical_not(), 0);
    // Each token's largest logit and log(sum(exp(logit - largest))). They are kept separately, because their sum would round a small loss.
    const at::Tensor largest = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
    const at::Tensor sums = at::empty_like(largest), losses = at::empty_like(largest);
    for_blocks(logits, [&](int64_t first, int64_t rows) {
      const at::Tensor x = logits.narrow(0, first, rows).to(at::kFloat), most = x.amax(1, /*keepdim=*/true);
      const at::Tensor shifted = x - most;
      at::Tensor wanted = shifted.gather(1, classes.narrow(0, first, rows).unsqueeze(1)).squeeze(1);
      if (smoothing > 0) wanted = wanted * (1 - smoothing) + shifted.mean(1) * smoothing;
      const at::Tensor sum = at::exp(shifted).sum(1).log_();
      largest.narrow(0, first, rows).copy_(most.squeeze(1));
      sums.narrow(0, first, rows).copy_(sum);
      losses.narrow(0, first, rows).copy_(sum - wanted);
    });
    const at::Tensor number = counts.sum().clamp_min(1).to(at::kFloat);
    ctx->save_for_backward({logits, classes, counts, largest, sums, number});
    ctx->saved_data["smoothing"] = smoothing;
    return losses.masked_fill(counts.logical_not(), 0).sum() / number;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!c10::GradMode::is_enabled(), ErrorKind::Usage, kCrossEntropy,
          "its backward cannot be differentiated (double backward); use at::cross_entropy_loss");
    const auto saved = ctx->get_saved_variables();
    const auto &logits = saved[0], &classes = saved[1], &counts = saved[2], &largest = saved[3], &sums = saved[4];
    const double smoothing = ctx->saved_data["smoothing"].toDouble();
    const at::Tensor share = at::where(counts, grads[0].to(at::kFloat) / saved[5], 0).unsqueeze(1);  // factor on each token's gradient
    const at::Tensor out = at::empty_like(logits);
    for_blocks(logits, [&](int64_t first, int64_t rows) {
      at::Tensor d = logits.narrow(0, first, rows).to(at::kFloat) - largest.narrow(0, first, rows).unsqueeze(1);
      d.sub_(sums.narrow(0, first, rows).unsqueeze(1)).exp_();  // probabilities
      if (smoothing > 0) d.sub_(smoothing / static_cast<double>(logits.size(1)));
      const at::Tensor own = classes.narrow(0, first, rows).unsqueeze(1);
      d.scatter_add_(1, own, at::empty_like(own, d.options()).fill_(smoothing - 1));
      out.narrow(0, first, rows).copy_(d.mul_(share.narrow(0, first, rows)));
    });
    return {out, {}, {}, {}};
  }
};

void check_targets(const at::Tensor& targets, int64_t classes, int64_t ignore_index) {
  const at::Tensor flat = targets.contiguous();
  const auto* ids = flat.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i)
    check(ids[i] == ignore_index || (ids[i] >= 0 && ids[i] < classes), ErrorKind::Data, kCrossEntropy, "target ", i, " is ", ids[i],
          "; allowed: 0 to ", classes - 1, ", and ignore_index (", ignore_index, ")");
}

}  // namespace

at::Tensor blocked_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options) {
  const bool shapes = logits.dim() >= 1 && logits.sizes().slice(0, static_cast<size_t>(logits.dim() - 1)) == targets.sizes();
  check(shapes && logits.size(-1) > 0 && logits.is_floating_point() && targets.scalar_type() == at::kLong, ErrorKind::Usage, kCrossEntropy,
        "logits ", c10::toString(logits.scalar_type()), " ", logits.sizes(), " for targets ", c10::toString(targets.scalar_type()), " ",
        targets.sizes(), "; allowed: [..., classes] of floating point for Long [...]");
  check(options.label_smoothing >= 0 && options.label_smoothing < 1, ErrorKind::Usage, kCrossEntropy, "label_smoothing is ",
        options.label_smoothing, "; allowed: at least 0 and below 1");
  return translated(kCrossEntropy, [&]() -> at::Tensor {
    if (targets.is_cpu()) check_targets(targets, logits.size(-1), options.ignore_index);
    const at::Tensor rows = logits.reshape({-1, logits.size(-1)}), flat = targets.reshape({-1});
    // Recorded as the operator that it replaces, so that tools that count or dump that operator find it.
    detail::RecordedOp record("aten::cross_entropy_loss", [&] {
      return std::vector<c10::IValue>{rows, flat, c10::IValue(), int64_t{1}, options.ignore_index, options.label_smoothing};
    });
    return record.result(BlockedCrossEntropy::apply(rows, flat, options.ignore_index, options.label_smoothing));
  });
}

}  // namespace npu_train
