// A window of micro-batches, compared with PyTorch's recipe: each loss is divided by the number of micro-batches and scaled; the scale
// follows torch.amp.GradScaler.
#include "testing.hpp"

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/grad_scaler.hpp"
#include "train/toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kRows = 8;

// A layer in which the weight gradient of each micro-batch is at most 1.5: with a scale of 65536 it overflows fp16, with a quarter of that
// it does not.
struct OneLayerImpl : torch::nn::Module {
  OneLayerImpl() {
    fc = register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(6, 4).bias(false)));
    torch::NoGradGuard no_grad;
    fc->weight.zero_();
  }
  at::Tensor forward(const at::Tensor& x) { return fc(x); }
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(OneLayer);

Batch twos(int64_t rows = kRows) {
  return to_device(Batch(torch::full({rows, 6}, 2.0), torch::zeros({rows}, torch::kLong)), device_under_test());
}

struct WindowOutcome {
  std::vector<bool> taken;
  double scale = 0;
  at::Tensor weight;
};

constexpr double kRate = 1e-4;

WindowOutcome by_recipe(int steps, int64_t micro_batches) {
  const auto& device = device_under_test();
  OneLayer net;
  net->to(device.c10());
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(kRate));
  GradScaler scaler({.init_scale = 65536, .growth_interval = 4});
  WindowOutcome out;
  for (int i = 0; i < steps; ++i) {
    sgd.zero_grad();
    for (int64_t k = 0; k < micro_batches; ++k) {
      const auto batch = twos();
      at::Tensor loss;
      {
        const Autocast autocast(device, torch::kHalf);
        loss = torch::cross_entropy_loss(net(batch.input()).to(at::kFloat), batch.target());
      }
      scaler.scale(loss / static_cast<double>(micro_batches)).backward();
    }
    out.taken.push_back(scaler.step(sgd));
    scaler.update();
  }
  out.scale = scaler.get_scale();
  out.weight = net->fc->weight.detach().cpu();
  return out;
}

WindowOutcome by_loop(const std::string& mode, int steps, int64_t micro_batches, bool graphs = false) {
  const auto& device = device_under_test();
  Toy toy;
  OneLayer net;
  toy.task = classifier(net);
  toy.task->to(device.c10());
  toy.precision = make_precision({mode, {.growth_interval = 4}, {}}, device);
  toy.optimizer = std::make_unique<Sgd>(toy.precision->prepare(toy.task->parameters()), SgdOptions{.lr = kRate, .momentum = 0});
  auto loop = toy.loop({.accumulate_grad_batches = micro_batches, .cuda_graphs = graphs ? "true" : "false"});
  WindowOutcome out;
  for (int i = 0; i < steps; ++i)
    out.taken.push_back(loop->train_step(std::vector<Batch>(static_cast<size_t>(micro_batches), twos())).taken);
  out.scale = toy.precision->scale();
  out.weight = toy.optimizer->parameters()[0].value.detach().cpu().to(at::kFloat);
  return out;
}

// A window. Its gradient in the loop, read from a step of SGD with rate 1, must be the mean over all its samples, computed in double
// precision.
struct Window {
  std::vector<int64_t> rows;
  int64_t accumulate;
};

void check_gradient(const Window& w, const std::string& mode, double tolerance) {
  CAPTURE(mode);
  CAPTURE(w.rows.size());
  Toy toy(mode);
  std::vector<Batch> window;
  std::vector<at::Tensor> inputs, targets;
  for (size_t k = 0; k < w.rows.size(); ++k) {
    window.push_back(toy_batch(w.rows[k], 20 + k));
    inputs.push_back(window.back().input().cpu().to(at::kDouble));
    targets.push_back(window.back().target().cpu());
  }
  torch::manual_seed(11);
  ToyNet plain(0.0);
  plain->eval();
  plain->to(at::kDouble);
  const auto expected_loss = torch::cross_entropy_loss(plain(torch::cat(inputs)), torch::cat(targets));
  expected_loss.backward();
  toy.optimizer = std::make_unique<Sgd>(toy.optimizer->parameters(), SgdOptions{.lr = 1, .momentum = 0});
  const auto before = copy_of(toy.optimizer->parameters());
  auto loop = toy.loop({.accumulate_grad_batches = w.accumulate, .gradient_clip_val = 1e6});
  toy.task->set_training(false);  // otherwise BatchNorm would see other batches
  const auto report = loop->train_step(window);
  REQUIRE(report.taken);
  CHECK(scalar_or(report.metrics, "loss", 0) == doctest::Approx(expected_loss.item<double>()).epsilon(tolerance));
  double square = 0;
  for (const auto& p : toy.optimizer->parameters()) {
    const at::Tensor gradient = (before.at(p.name) - p.value.detach()).cpu().to(at::kDouble),
                     expected = plain->named_parameters()[p.name].grad();
    CAPTURE(p.name);
    CHECK((gradient - expected).abs().max().item<double>() < tolerance * expected.abs().max().item<double>() + 1e-6);
    square += expected.square().sum().item<double>();
  }
  CHECK(report.grad_norm == doctest::Approx(std::sqrt(square)).epsilon(tolerance));  // clipping sees the mean over the window
}

}  // namespace

TEST_CASE("accumulation: eight steps of four overflow no earlier than in PyTorch's recipe") {
  const auto expected = by_recipe(8, 4);
  // The same loop in Python, with torch.amp.GradScaler of PyTorch 2.13, gives these values.
  CHECK(expected.taken == std::vector<bool>(8, true));
  CHECK(expected.scale == 262144);
  CHECK(expected.weight[0][0].item<double>() == doctest::Approx(0.00119736325).epsilon(1e-4));
  for (const std::string mode : {"16-mixed", "16-true"})
    for (const bool graphs : {false, true}) {
      if (graphs && device_under_test().is_cpu()) continue;
      CAPTURE(mode);
      CAPTURE(graphs);
      const auto got = by_loop(mode, 8, 4, graphs);
      CHECK(got.taken == expected.taken);
      CHECK(got.scale == expected.scale);
      CHECK(at::allclose(got.weight, expected.weight, 1e-3, 1e-6));  // gradients are rounded to fp16, by up to 2^-11
    }
  const auto alone = by_loop("16-mixed", 8, 1);  // without accumulation the same gradients overflow, also in PyTorch
  CHECK(alone.taken == std::vector<bool>{false, true, true, true, true, false, true, true});
  CHECK(alone.scale == 32768);
}

TEST_CASE("accumulation: where gradients are fp16 themselves their sum overflows as the gradient of one large batch does") {
  for (const int64_t micro_batches : {4, 64}) {
    const auto many = by_loop("O3", 8, micro_batches), one = by_loop("O3", 8, 1);
    CHECK(many.taken == one.taken);
    CHECK(many.scale == one.scale);
    CHECK(at::allclose(many.weight, one.weight, 5e-3, 1e-6));  // sums in fp16 are rounded after each micro-batch, by up to 2^-11
  }
}

TEST_CASE("accumulation: many micro-batches neither overflow nor vanish") {
  for (const std::string mode : {"16-mixed", "16-true"}) {
    CAPTURE(mode);
    const auto many = by_loop(mode, 2, 64);
    CHECK(many.taken == std::vector<bool>(2, true));
    const auto expected = by_recipe(2, 64);
    CHECK(at::allclose(many.weight, expected.weight, 1e-3, 1e-6));
    CHECK(many.weight.abs().max().item<double>() > 2e-4);
  }
}

TEST_CASE("accumulation: even, uneven and partial windows give the mean over their samples") {
  for (const auto& [mode, tolerance] : std::map<std::string, double>{{"32-true", 1e-5}, {"16-mixed", 0.02}, {"bf16-mixed", 0.1}})
    for (const auto& w : std::vector<Window>{{{8, 8, 8, 8}, 4},
                                             {{8, 8, 8}, 3},
                                             {{8, 3, 8, 5}, 4},
                                             {{8, 8}, 3},  // like the last window of an epoch
                                             {{5}, 3},     // also with a single short batch
                                             {{5}, 1},
                                             {{2, 11}, 1}})  // from a program that owns its loop
      check_gradient(w, mode, tolerance);
}

TEST_CASE("accumulation: a partial window is scaled as a full one in every loop") {
  // PyTorch divides by the number of micro-batches in a full window. So does the last, shorter window here, and a fit() and a custom loop
  // agree bit for bit.
  const auto taken = [](std::vector<Batch> window, int64_t accumulate) {
    const auto& device = device_under_test();
    Toy toy;
    OneLayer net;
    toy.task = classifier(net);
    toy.task->to(device.c10());
    toy.precision = make_precision({"16-mixed", {}, {}}, device);
    toy.optimizer = std::make_unique<Sgd>(toy.precision->prepare(toy.task->parameters()), SgdOptions{.lr = kRate, .momentum = 0});
    return toy.loop({.accumulate_grad_batches = accumulate})->train_step(window).taken;
  };
  CHECK(taken({twos()}, 4));
  CHECK(taken({twos(3)}, 4));
  CHECK_FALSE(taken({twos()}, 1));
}

TEST_CASE("accumulation: a task whose losses weigh tokens says how many, and is scaled alike") {
  struct Tokens final : WrappedTask {
    using WrappedTask::WrappedTask;
    StepOutput training_step(const ForwardContext& context) override {
      auto out = inner->training_step(context);
      out.weight *= 100;
      return out;
    }
    double weight_of(int64_t samples) const override { return 100.0 * static_cast<double>(samples); }
  };
  const auto run = [](bool tokens) {
    Toy toy("16-mixed");
    if (tokens) toy.task = std::make_shared<Tokens>(toy.task);
    auto loop = toy.loop({.accumulate_grad_batches = 4});
    for (int i = 0; i < 3; ++i) loop->train_step({toy_batch(8, 1), toy_batch(8, 2), toy_batch(5, 3), toy_batch(8, 4)});
    return weights(toy);
  };
  CHECK(run(true) == run(false));
}
