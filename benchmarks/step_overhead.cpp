// Measures the trainer's overhead per step: a task without computation on a data set without cost. Prints one line of JSON.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <npu_train/trainer.hpp>

namespace {

using namespace npu_train;

/// One parameter and a loss without a model, so that only the trainer is measured.
class NoOp final : public Task {
 public:
  StepOutput training_step(const ForwardContext& context) override { return {weight_.sum(), context.batch().weight, {}}; }
  at::Tensor predict(const at::Tensor& input) override { return input; }
  ParameterSet parameters() override { return ParameterSet({{"weight", weight_}}); }
  void set_training(bool) override {}
  void to(c10::Device) override {}

 private:
  at::Tensor weight_ = at::zeros({1}).set_requires_grad(true);
};

/// The parameters of a real network; only one gets a gradient.
class NoOpModel final : public ModelTask {
 public:
  explicit NoOpModel(Model model) : ModelTask(std::move(model)), first_(ModelTask::parameters()[0].value) {}
  StepOutput training_step(const ForwardContext& context) override { return {first_.sum(), context.batch().weight, {}}; }

 private:
  at::Tensor first_;
};

class Watch final : public Callback {
 public:
  std::vector<double> steps;
  void on_step_end(TrainLoop&, const StepReport& report) override { steps.push_back(report.seconds); }
};

double median_us(const char* precision, const std::shared_ptr<Task>& task) {
  const auto data = std::make_shared<TensorDataset>(at::zeros({4000, 1}), at::zeros({4000}));
  Trainer trainer({.device = "cpu",
                   .precision = precision,
                   .data = {.options = {{"batch_size", 1}, {"num_workers", "0"}}},
                   .trainer = {.max_epochs = 1},
                   .output = {.dir = ""}});
  const auto watch = std::make_shared<Watch>();
  trainer.add_callback(watch);
  trainer.fit(task, data);
  std::sort(watch->steps.begin(), watch->steps.end());
  return 1e6 * watch->steps[watch->steps.size() / 2];
}

}  // namespace

int main() {
  const auto network = builtin_parts().models.make({.name = "resnet50", .options = {{"num_classes", 1000}}, .mark = {}}, "model");
  std::printf("{\"step_us_32_true\": %.1f, \"step_us_16_mixed\": %.1f, \"step_us_resnet50\": %.1f}\n",
              median_us("32-true", std::make_shared<NoOp>()), median_us("16-mixed", std::make_shared<NoOp>()),
              median_us("32-true", std::make_shared<NoOpModel>(network)));
}
