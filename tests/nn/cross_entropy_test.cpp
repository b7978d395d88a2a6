#include "testing.hpp"

#include "npu_train/nn/cross_entropy.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <cmath>

#include "npu_train/device/live_bytes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct LossAndGradient {
  at::Tensor loss, gradient;
};

template <class Loss>
LossAndGradient run(const at::Tensor& logits, const Loss& loss) {
  const at::Tensor x = logits.detach().clone().requires_grad_();
  const at::Tensor y = loss(x);
  y.backward();
  return {y.detach(), x.grad()};
}

// Returns the largest difference, relative to the largest value.
double apart(const at::Tensor& a, const at::Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

at::Tensor torchs(const at::Tensor& x, const at::Tensor& targets, const CrossEntropyOptions& o) {
  return at::cross_entropy_loss(x.to(at::kFloat).flatten(0, -2), targets.flatten(), {}, at::Reduction::Mean, o.ignore_index,
                                o.label_smoothing);
}

}  // namespace

TEST_CASE("value and gradient of torch's cross entropy, over several blocks, with ignored targets and label smoothing") {
  torch::manual_seed(1);
  const at::Tensor logits = at::randn({3, 50, 9001}) * 4;  // 116 tokens fill a block
  at::Tensor targets = at::randint(0, 9001, {3, 50}, at::kLong);
  targets[0][3] = 7, targets[2][49] = 0, targets[1][1] = 9000;
  for (const double smoothing : {0.0, 0.1, 0.9})
    for (const int64_t ignored : {-100, 7}) {
      const CrossEntropyOptions options{.ignore_index = ignored, .label_smoothing = smoothing};
      CAPTURE(smoothing);
      CAPTURE(ignored);
      if (ignored == -100) targets[1][0] = -100;
      if (ignored == 7) targets[1][0] = 7;
      const auto expected = run(logits, [&](const at::Tensor& x) { return torchs(x, targets, options); });
      const auto got = run(logits, [&](const at::Tensor& x) { return blocked_cross_entropy(x, targets, options) * 1.0; });
      CHECK(apart(got.loss, expected.loss) < 1e-6);
      CHECK(apart(got.gradient, expected.gradient) < 1e-5);
      CHECK(got.gradient[1][0].abs().max().item<double>() == 0);
    }
}

TEST_CASE("large logits do not overflow, and the incoming gradient counts") {
  const at::Tensor logits = at::tensor({1000.0, -1000.0, 999.0}, at::kFloat).unsqueeze(0), target = at::tensor({2}, at::kLong);
  const auto got = run(logits, [&](const at::Tensor& x) { return blocked_cross_entropy(x, target) * 3; });
  CHECK(got.loss.item<double>() == doctest::Approx(3 * (1 + std::log1p(std::exp(-1.0)))));
  const double p = 1 / (1 + std::exp(-1.0));
  CHECK(got.gradient[0][0].item<double>() == doctest::Approx(3 * p));
  CHECK(got.gradient[0][1].item<double>() == 0);
  CHECK(got.gradient[0][2].item<double>() == doctest::Approx(-3 * p));
}

TEST_CASE("in 16 bits the loss is in fp32 and the gradient is rounded once") {
  torch::manual_seed(2);
  const at::Tensor targets = at::randint(0, 999, {40}, at::kLong);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor logits = at::randn({40, 999}).to(dtype);
    const auto expected = run(logits.to(at::kFloat), [&](const at::Tensor& x) { return torchs(x, targets, {}); });
    const auto got = run(logits, [&](const at::Tensor& x) { return blocked_cross_entropy(x, targets); });
    CHECK(((got.loss.scalar_type() == at::kFloat)));
    CHECK(((got.gradient.scalar_type() == dtype)));
    CHECK(apart(got.loss, expected.loss) < 1e-6);
    CHECK(apart(got.gradient.to(at::kFloat), expected.gradient) < (dtype == at::kHalf ? 1e-3 : 4e-3));
  }
}

TEST_CASE("no target that counts: neither a loss nor a gradient") {
  const auto got = run(at::randn({2, 3}), [](const at::Tensor& x) { return blocked_cross_entropy(x, at::full({2}, -100, at::kLong)); });
  CHECK(got.loss.item<double>() == 0);
  CHECK(got.gradient.abs().max().item<double>() == 0);
}

TEST_CASE("memory: the gradient and a block, not the logits in fp32") {
  torch::manual_seed(3);
  const int64_t tokens = 512, classes = 50257;
  const at::Tensor targets = at::randint(0, classes, {tokens}, at::kLong);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({tokens, classes}).to(dtype).requires_grad_();
    const auto peak = [&](const auto& loss) {
      x.mutable_grad() = at::Tensor();
      const LiveBytes live;
      loss(x).backward();
      return static_cast<double>(live.peak()) / static_cast<double>(tokens * classes);
    };
    const double torch_bytes = peak([&](const at::Tensor& t) { return torchs(t, targets, {}); });
    const double bytes = peak([&](const at::Tensor& t) { return blocked_cross_entropy(t, targets); });
    MESSAGE(c10::toString(dtype), ": bytes for each logit in addition to the logits: ", bytes, ", of torch's ", torch_bytes);
    CHECK(bytes < static_cast<double>(c10::elementSize(dtype)) + 0.75);
    CHECK(torch_bytes > static_cast<double>(c10::elementSize(dtype)) + 3.9);
  }
}

TEST_CASE("what is not logits and targets is one error") {
  const auto error = [](const auto& run, ErrorKind kind, const std::string& words) {
    const auto e = error_of(run);
    CHECK(((e.kind() == kind)));
    CHECK_MESSAGE(std::string(e.what()).find(words) != std::string::npos, e.what());
  };
  const at::Tensor logits = at::zeros({2, 3}), targets = at::zeros({2}, at::kLong);
  error([&] { blocked_cross_entropy(logits, at::zeros({3}, at::kLong)); }, ErrorKind::Usage, "Float [2, 3] for targets Long [3]");
  error([&] { blocked_cross_entropy(logits, at::zeros({2})); }, ErrorKind::Usage, "targets Float [2]");
  error([&] { blocked_cross_entropy(logits.to(at::kLong), targets); }, ErrorKind::Usage, "logits Long");
  error([&] { blocked_cross_entropy(logits, targets, {.label_smoothing = 1}); }, ErrorKind::Usage, "label_smoothing is 1");
  error([&] { blocked_cross_entropy(logits, targets, {.label_smoothing = -0.1}); }, ErrorKind::Usage, "label_smoothing is -0.1");
  error([&] { blocked_cross_entropy(logits, targets + 3); }, ErrorKind::Data, "target 0 is 3; allowed: 0 to 2");
  const at::Tensor x = at::randn({2, 3}).requires_grad_();
  error([&] { torch::autograd::grad({blocked_cross_entropy(x, targets)}, {x}, {}, {}, /*create_graph=*/true); }, ErrorKind::Usage,
        "double backward");
}
