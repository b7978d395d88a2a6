#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::TempDir;
using Cause = Divergence::Cause;

namespace {

// A network with a bias before a norm over the batch, so the true gradient of that bias is zero.
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

TEST_CASE("noise_steps: steps that Adam makes from rounding are reported and do not fail") {
  for (const char* task : {"tensor", "statistics"}) {
    const TempDir dir;
    const auto result = compare_dumps(run(dir / "a", true, task), run(dir / "b", false, task));
    CAPTURE(to_text(result));
    CHECK(result.agrees);
    CHECK_FALSE(result.first.found);
    const auto& step = result.steps.at(0);
    CHECK((step.noise_weights > 0 && step.noise_state > 0));
    // one note covers all steps, with the smallest and the largest number of weights
    for (const auto& part : {std::to_string(step.noise_weights) + " ", std::string(" elements of weights"),
                             std::to_string(step.noise_state) + " of the optimizer"})
      CHECK_MESSAGE(has(to_text(result), part), part);
    CHECK(to_text(result).find("turns into noise") != std::string::npos);
  }
}

TEST_CASE("noise_steps: weights that differ by more than steps do are not omitted") {
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

TEST_CASE("noise_steps: of statistics a few elements that went another way are noise, all of them are not") {
  for (const bool few : {true, false}) {
    CAPTURE(few);
    const TempDir dir;
    const auto written = [&](const char* name, bool other) {
      CraftedDump dump(dir / name, other ? R"("device": "npu:0")" : R"("device": "cpu")");
      const auto weight = [&](double max, double mean, double norm) {
        char text[256];
        std::snprintf(
            text, sizeof text,
            R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1024], "Max": %.9g, "Min": %.9g, "Mean": %.9g, "Norm": %.9g})",
            max, -max, mean, norm);
        return std::string(text);
      };
      dump.add("Module.bn.BatchNorm2d.forward.0", CraftedDump::tensor("[4]"), CraftedDump::tensor("[4]"));
      dump.add_call("Module.bn.BatchNorm2d.parameters_grad.0", R"({"weight": [)" + weight(1, 1e-3, other ? 4.00001 : 4) + "]}");
      const double rate = 1e-3, flipped = few ? 1 : 64;
      const auto moved = weight(rate, other ? 2 * rate * flipped / 1024 : 0, rate * 32);
      dump.add_call("Module.optimizer.Adamw.forward.0",
                    R"({"input_args": [], "input_kwargs": {"lr": {"type": "float", "value": 0.001}}, "output": {"exp_avg_sq/bn.weight": )" +
                        weight(1e-6, 1e-7, 1e-6) + R"(}, "parameters": {"bn.weight": )" + moved + "}}");
      return dump.write();
    };
    const auto result = compare_dumps(written("a", true), written("b", false));
    CAPTURE(to_text(result));
    CHECK(result.steps.at(0).noise_weights == (few ? 1 : 0));
    CHECK(result.first.found != few);
  }
}
