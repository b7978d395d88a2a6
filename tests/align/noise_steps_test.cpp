#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include "npu_train/align/compare.hpp"
#include "npu_train/align/compare_report.hpp"
#include "npu_train/align/dumper.hpp"
#include "npu_train/nn/named_state.hpp"
#include "npu_train/optim/adamw.hpp"

using namespace npu_train;
using npu_train::testing::TempDir;
using Cause = Divergence::Cause;

namespace {

// A bias in front of a norm over the batch: its true gradient is zero.
struct BiasNet : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(12, 16))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(16).track_running_stats(false)))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 10))};
  at::Tensor forward(const at::Tensor& x) { return head(torch::gelu(norm(first(x)))); }
};

std::string run(const std::filesystem::path& dir, bool elsewhere, const std::string& task, double wrong = 0) {
  at::manual_seed(5);
  BiasNet net;
  AdamW adam(parameters_of(net), {.lr = 1e-3});
  Dumper dumper({.task = task, .dir = dir.string()}, dumped_model(net), 0, {{"device", elsewhere ? "npu:0" : "cpu"}});
  dumper.watch(adam);
  for (int step = 0; step < 3; ++step) {
    at::manual_seed(50 + step);
    const at::Tensor x = at::randn({32, 12}), target = at::randint(10, {32}, at::kLong);
    adam.zero_grad();
    dumper.start();
    const at::Tensor loss = at::cross_entropy_loss(net.forward(elsewhere ? x * (1 + 2e-7 * at::randn_like(x)) : x), target);
    dumper.loss(loss);
    loss.backward();
    dumper.stop();
    adam.step();
    const at::NoGradGuard no_grad;
    if (wrong != 0) net.first->bias.add_(wrong);
    dumper.step();
  }
  return dir.string();
}

}  // namespace

TEST_CASE("noise_steps: steps that Adam makes of rounding are told and do not fail") {
  for (const char* task : {"tensor", "statistics"}) {
    const TempDir dir;
    const auto result = compare_dumps(run(dir / "a", true, task), run(dir / "b", false, task));
    CAPTURE(to_text(result));
    CHECK(result.agrees);
    CHECK_FALSE(result.first.found);
    const auto& step = result.steps.at(0);
    CHECK((step.noise_weights > 0 && step.noise_state > 0));
    for (const auto& part :
         {std::to_string(step.noise_weights) + " elements of weights", std::to_string(step.noise_state) + " of the optimizer"})
      CHECK_MESSAGE(has(to_text(result), part), part);
    CHECK(to_text(result).find("steps of noise") != std::string::npos);
  }
}

TEST_CASE("noise_steps: weights that differ by more than steps do are not left out") {
  const TempDir dir;
  const auto result = compare_dumps(run(dir / "a", true, "tensor", 0.1), run(dir / "b", false, "tensor"));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Optimizer));
}

TEST_CASE("noise_steps: between equal environments every bit counts") {
  const TempDir dir;
  const auto a = run(dir / "a", true, "tensor"), b = run(dir / "b", true, "tensor");
  const auto step = compare_dumps(a, b).steps.at(0);
  CHECK((step.noise_weights == 0 && step.noise_state == 0 && step.noise_gradients == 0));
}
