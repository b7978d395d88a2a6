#include "testing.hpp"

#include "npu_train/train/contrastive.hpp"
#include "npu_train/train/language_model.hpp"
#include "npu_train/train/task.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A task written from scratch, with two parameters, no module, two inputs, a metric of its own, and a weight that differs from the batch
/// size.
class Line final : public Task {
 public:
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    const auto y = slope_ * batch.at("x") + offset_;
    const auto w = batch.at("importance");
    return {((y - batch.at("y")).square() * w).sum() / w.sum(), w.sum().item<double>(), y};
  }
  at::Tensor predict(const at::Tensor& x) override { return slope_ * x + offset_; }
  ParameterSet parameters() override { return ParameterSet({{"slope", slope_}, {"offset", offset_}}); }
  std::vector<std::string> metric_names() const override { return {"largest"}; }
  at::Tensor metric_sums(const StepOutput& o, const Batch& b) override {
    return (o.outputs.first().detach() - b.at("y")).abs().max().reshape({1}) * double(b.size);
  }
  void set_training(bool) override {}
  void to(c10::Device) override {}

 private:
  at::Tensor slope_ = torch::zeros({}).set_requires_grad(true), offset_ = torch::zeros({}).set_requires_grad(true);
};

Batch points(double first, double importance) {
  Batch b;
  const auto x = torch::arange(4, torch::kFloat) + first;
  b.set("x", x);
  b.set("y", 2 * x + 1);
  b.set("importance", torch::full({4}, importance));
  b.size = 4;
  b.weight = 4;
  return b;
}

}  // namespace

TEST_CASE("a task of one's own trains on named tensors with weights of its own") {
  Line task;
  const auto precision = make_precision({"32-true", {}, {}}, Device{});
  Sgd optimizer(precision->prepare(task.parameters()), {.lr = 0.02, .momentum = 0.9});
  SingleDeviceStrategy strategy;
  const Observers observers;
  TrainStep step(task, *precision, optimizer, nullptr, strategy, observers, {});
  StepResult last;
  for (int i = 0; i < 300; ++i) last = step.run({points(0, 1), points(-3, 0.5)});
  CHECK(task.predict(torch::tensor(10.0)).item<double>() == doctest::Approx(21.0).epsilon(1e-3));
  CHECK(last.packed[0].item<double>() / last.loss_weight < 1e-4);
  CHECK(last.loss_weight == doctest::Approx(0.75));  // in units of a full window: two batches like the first
  CHECK(last.samples == 8);
}

TEST_CASE("of the library's tasks the contrastive one compares samples across ranks") {
  const auto model = as_model(torch::nn::Sequential(torch::nn::Linear(2, 2)));
  CHECK(dynamic_cast<ComparesRanks*>(contrastive(model).get()) != nullptr);
  CHECK(dynamic_cast<ComparesRanks*>(language_model(model).get()) == nullptr);
  CHECK(dynamic_cast<ComparesRanks*>(classifier(model).get()) == nullptr);
}
