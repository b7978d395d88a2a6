#include "npu_train/nn/sync_batch_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "npu_train/base/host_numbers.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/norm_watch.hpp"
#include "npu_train/trace/op_mode.hpp"

namespace npu_train {
namespace {

constexpr const char* kSync = "SyncBatchNorm";
using Gather = SyncBatchNorm::Gather;
using Shared = std::shared_ptr<const Gather>;

thread_local Shared innermost_sync;

// Holds the function, because an IValue cannot hold a std::function.
struct GatherHolder final : torch::CustomClassHolder {
  explicit GatherHolder(Shared g) : gather(std::move(g)) {}
  Shared gather;
};

// Lists all dimensions except the channels.
std::vector<int64_t> reduced(const at::Tensor& x) {
  std::vector<int64_t> out{0};
  for (int64_t d = 2; d < x.dim(); ++d) out.push_back(d);
  return out;
}

// Reshapes [C] for broadcasting to x: [1, C, 1, ...].
at::Tensor by_channel(const at::Tensor& t, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return t.reshape(sizes);
}

// Returns the dtype of statistics and products.
at::ScalarType wide(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Returns the dtype of the exchanged numbers. NPUs have no fp64.
at::ScalarType sent(const at::Tensor& x) { return x.is_cpu() || x.is_cuda() ? at::kDouble : at::kFloat; }

// Returns the numbers of the ranks that have a batch, one row each. Error(Peer) if their layers differ.
at::Tensor gathered(const Gather& gather, const at::Tensor& own) {
  auto all = gather(own);
  check(all.dim() == 2 && all.size(1) == own.numel(), ErrorKind::Peer, kSync, "the ranks gave numbers ", all.sizes(),
        " where this one gave ", own.numel(), "; hint: all ranks must run the same layers in the same order");
  return all;
}

// Moments of all ranks' samples, with the dtype and device of gather()'s result.
struct Moments {
  at::Tensor count;           // scalar
  at::Tensor mean, variance;  // [C], biased
};

// Combines the ranks' moments in rank order (Chan, Golub and LeVeque 1983).
Moments moments_of_ranks(const Gather& gather, const at::Tensor& x) {
  const auto [variance, mean] = at::var_mean(x, reduced(x), /*correction=*/0);
  const auto options = x.options().dtype(sent(x));
  const auto samples = x.numel() / x.size(1);
  const auto all = gathered(gather, at::cat({at::full({1}, samples, options), mean.to(options), variance.to(options)}));
  check(all.size(0) > 1 || samples > 1, ErrorKind::Usage, kSync, "training needs more than one value per channel, over all ranks; x is ",
        x.sizes());
  const auto channels = x.size(1);
  const auto counts = all.select(1, 0), means = all.narrow(1, 1, channels), variances = all.narrow(1, 1 + channels, channels);
  Moments out{at::zeros_like(counts[0]), at::zeros_like(means[0]), at::zeros_like(variances[0])};
  for (int64_t r = 0; r < all.size(0); ++r) out.count.add_(counts[r]);
  for (int64_t r = 0; r < all.size(0); ++r) out.mean.add_(means[r] * (counts[r] / out.count));
  for (int64_t r = 0; r < all.size(0); ++r) out.variance.add_((variances[r] + (means[r] - out.mean).square()) * (counts[r] / out.count));
  return out;
}

void move(const at::Tensor& running, const at::Tensor& to, double momentum) {
  if (!running.defined()) return;
  const at::Tensor added = to * momentum;
  if (!added.is_cpu()) return void(running.data().mul_(1 - momentum).add_(added.to(running.scalar_type())));
  detail::move_norm(running, 1 - momentum, host_numbers(added));
}

// Batch normalisation (Ioffe and Szegedy 2015). Its moments in the forward and its sums in the backward are taken over all ranks.
class SyncedNorm : public torch::autograd::Function<SyncedNorm> {
 public:
  // Takes std::optional, because apply() accepts an empty optional, but no undefined tensor.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& weights,
                            const std::optional<at::Tensor>& biases, const Moments& moments, double eps, const Shared& gather) {
    const at::Tensor weight = weights.value_or(at::Tensor()), bias = biases.value_or(at::Tensor());
    const at::Tensor mean = moments.mean.to(x.device(), wide(x));
    const at::Tensor inv_std = (moments.variance + eps).rsqrt().to(x.device(), wide(x));
    ctx->save_for_backward({x, weight, bias, mean, inv_std});
    ctx->saved_data["count"] = moments.count;
    ctx->saved_data["gather"] = c10::IValue::make_capsule(c10::make_intrusive<GatherHolder>(gather));
    const at::Tensor scale = weight.defined() ? inv_std * weight : inv_std;
    at::Tensor y = (x.to(wide(x)) - by_channel(mean, x)).mul_(by_channel(scale, x));
    if (bias.defined()) y.add_(by_channel(bias, x));
    return y.to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    const at::NoGradGuard no_grad;
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3], &inv_std = saved[4];
    const at::Tensor dy = grads[0].to(wide(x));
    const at::Tensor normed = (x.to(wide(x)) - by_channel(mean, x)).mul_(by_channel(inv_std, x));
    const at::Tensor sum_dy = dy.sum(reduced(x)), sum_dy_normed = (dy * normed).sum(reduced(x));

    const auto holder = c10::static_intrusive_pointer_cast<GatherHolder>(ctx->saved_data["gather"].toCapsule());
    const auto all = gathered(*holder->gather, at::cat({sum_dy, sum_dy_normed}).to(sent(x)));
    auto sums = at::zeros_like(all[0]);
    for (int64_t r = 0; r < all.size(0); ++r) sums.add_(all[r]);
    const auto means = sums.div_(ctx->saved_data["count"].toTensor()).to(x.device(), wide(x)).reshape({2, -1});

    at::Tensor dx = at::addcmul(dy - by_channel(means[0], x), normed, by_channel(means[1], x), -1);
    dx.mul_(by_channel(weight.defined() ? inv_std * weight : inv_std, x));
    const auto of = [](const at::Tensor& like, const at::Tensor& grad) {
      return like.defined() ? grad.to(like.scalar_type()) : at::Tensor();
    };
    return {dx.to(x.scalar_type()), of(weight, sum_dy_normed), of(bias, sum_dy), {}, {}, {}};
  }
};

at::Tensor synced_batch_norm(const Shared& gather, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const at::Tensor& running_mean, const at::Tensor& running_var, double momentum, double eps) {
  Moments moments;
  {
    const at::NoGradGuard no_grad;
    moments = moments_of_ranks(*gather, x.to(wide(x)));
    move(running_mean, moments.mean, momentum);
    move(running_var, moments.variance * (moments.count / (moments.count - 1)), momentum);
  }
  const auto given = [](const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
  return SyncedNorm::apply(x, given(weight), given(bias), moments, eps, gather);
}

}  // namespace

class SyncBatchNorm::Mode final : public detail::OpMode {
 public:
  explicit Mode(Shared gather) : gather_(gather), outer_(std::exchange(innermost_sync, std::move(gather))), guard_(*this) {}
  ~Mode() override { innermost_sync = outer_; }

  // Arguments: batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled).
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override {
    constexpr size_t kArguments = 9;
    const auto* args = stack.data() + (stack.size() - op.schema().arguments().size());
    if (op.schema().name() != "aten::batch_norm" || !args[5].toBool()) return detail::call_below(op, stack);
    const auto tensor = [&](size_t i) { return args[i].isTensor() ? args[i].toTensor() : at::Tensor(); };
    const detail::NoOpMode below;
    const at::Tensor y =
        synced_batch_norm(gather_, tensor(0), tensor(1), tensor(2), tensor(3), tensor(4), args[6].toDouble(), args[7].toDouble());
    stack.resize(stack.size() - kArguments);
    stack.emplace_back(y);
  }

 private:
  Shared gather_, outer_;
  detail::OpModeGuard guard_;
};

SyncBatchNorm::SyncBatchNorm(Gather gather) {
  check(gather != nullptr, ErrorKind::Usage, kSync, "there is no function that gathers");
  mode_ = std::make_unique<Mode>(std::make_shared<const Gather>(std::move(gather)));
}
SyncBatchNorm::~SyncBatchNorm() = default;

SyncBatchNorm::State::State() : gather_(innermost_sync) {}

SyncBatchNorm::State::Scope::Scope(const State& state) {
  if (state.gather_ != nullptr) synced_ = std::make_unique<SyncBatchNorm>(*state.gather_);
}
SyncBatchNorm::State::Scope::~Scope() = default;

}  // namespace npu_train
