// Training with the step and the optimizers of this library, compared with plain PyTorch: the losses in tests/fixtures.
#include "testing.hpp"

#include <algorithm>

#include <torch/nn.h>

#include "npu_train/device/threads.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/step.hpp"
#include "reference/formula.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Trains for as many steps as the fixture has losses. `make_optimizer` gets the parameters that the precision has prepared.
template <class MakeOptimizer>
void check_training(const Model& model, const nlohmann::json& f, double tolerance, MakeOptimizer make_optimizer) {
  const ThreadCount one(1);
  const auto task = classifier(model);
  task->set_training(true);
  const auto precision = make_precision({"32-true", {}, {}}, Device{});
  auto optimizer = make_optimizer(precision->prepare(task->parameters(), task->norm_parameters()));
  SingleDeviceStrategy strategy;
  const Observers observers;
  TrainStep step(*task, *precision, optimizer, nullptr, strategy, observers, {});
  const int64_t size = f["batch"], classes = f["classes"], side = f["side"];
  double worst = 0;
  for (size_t i = 0; i < f["losses"].size(); ++i) {
    const auto n = static_cast<int64_t>(i);
    const auto result = step.run({Batch(formula_images("pictures." + std::to_string(n), size, side), formula_labels(size, classes, n))});
    const double loss = result.packed[0].item<double>() / result.loss_weight, expected = f["losses"][i];
    const double apart = std::abs(loss - expected) / std::abs(expected);
    CAPTURE(i);
    CHECK(result.taken);
    if (i == 0) CHECK(apart < f["tolerance"]["first_loss"].get<double>());
    CHECK(apart < tolerance);
    worst = std::max(worst, apart);
  }
  MESSAGE(model.name, ": largest relative difference of ", f["losses"].size(), " losses ", worst);
}

}  // namespace

TEST_CASE("resnet50 with Sgd: the losses of plain PyTorch") {
  const auto f = fixture("resnet50");
  REQUIRE(f["losses"].size() == 5);
  const Model model = resnet(50, {.num_classes = f["classes"]});
  fill_by_formula(model, "bn3.weight", f["last_gamma"]["losses"]);
  const auto& o = f["optimizer"];
  check_training(model, f, f["tolerance"]["losses"], [&](ParameterSet parameters) {
    return Sgd(std::move(parameters), {.lr = o["lr"], .momentum = o["momentum"], .weight_decay = o["weight_decay"]});
  });
}

TEST_CASE("vit_tiny with AdamW: the losses of plain PyTorch") {
  const auto f = fixture("vit_tiny");
  REQUIRE(f["losses"].size() == 20);
  const Model model = vit(vit_tiny_cifar10_options(), "vit_tiny_cifar10");
  fill_by_formula(model);
  const auto& o = f["optimizer"];
  check_training(model, f, 1e-4,
                 [&](ParameterSet parameters) { return AdamW(std::move(parameters), {.lr = o["lr"], .weight_decay = o["weight_decay"]}); });
}
