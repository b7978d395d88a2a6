// A program's callback with a state of its own, in a Trainer: checkpoints on the disk and resumed runs.
#include "testing.hpp"

#include <algorithm>

#include <torch/nn.h>

#include "npu_train/core/log.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Counts steps, and stores the last learning rate as a tensor.
struct StepCounter final : Callback {
  std::string name() const override { return "step_counter"; }
  State state() const override { return {{{"lr", last_lr}}, {{"steps", steps}}}; }
  void load_state(const State& state) override {
    steps = state.integer("steps", name());
    last_lr = state.tensor("lr", name());
  }
  void on_step_end(TrainLoop&, const StepReport& report) override {
    ++steps;
    last_lr = torch::full({1}, report.lr);
  }
  int64_t steps = 0;
  at::Tensor last_lr = torch::zeros({1});
};

struct CountedRuns {
  TempDir dir;
  std::vector<std::string> warnings;

  /// Trains for `epochs` with a callback that is added before or after the resume, or not at all.
  std::shared_ptr<StepCounter> train(int64_t epochs, const std::string& when) {
    const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
      if (level == LogLevel::Warning) warnings.emplace_back(text);
    });
    RunConfig c{.device = "cpu", .precision = "32-true"};
    c.data.options = {{"batch_size", 8}, {"num_workers", "0"}};
    c.trainer = {.max_epochs = epochs, .threads = 1};
    c.output = {.dir = dir.path().string(), .name = "run"};
    torch::manual_seed(1);
    Trainer trainer(c);
    auto counter = std::make_shared<StepCounter>();
    if (when == "before") trainer.add_callback(counter);
    trainer.setup(classifier(torch::nn::Sequential(torch::nn::Linear(4, 3))),
                  std::make_shared<TensorDataset>(torch::randn({40, 4}), torch::randint(3, {40}), 3));
    trainer.resume("auto");
    if (when == "after") trainer.add_callback(counter);
    last = trainer.fit().last_checkpoint;
    return counter;
  }
  int64_t saved_steps() const { return load_checkpoint(last).at("callbacks.step_counter").integer("steps", "step_counter"); }
  std::string last;
};

}  // namespace

TEST_CASE("the state of a callback goes through checkpoints, a run without the callback, and a resume before it is added") {
  CountedRuns runs;
  CHECK(runs.train(1, "before")->steps == 5);
  CHECK(runs.saved_steps() == 5);
  const auto resumed = runs.train(2, "before");
  CHECK(resumed->steps == 10);
  const auto said = [&](const std::string& words) {
    return std::count_if(runs.warnings.begin(), runs.warnings.end(), [&](const auto& w) { return has(w, words); });
  };
  CHECK(said("'step_counter'") == 0);
  runs.train(3, "never");
  CHECK(said("the state of a callback 'step_counter', which this run does not have") == 1);
  CHECK(runs.saved_steps() == 10);
  CHECK(load_checkpoint(runs.last).at("callbacks.step_counter").tensors.at("lr").item<float>() == resumed->last_lr.item<float>());
  CHECK(runs.train(4, "after")->steps == 15);
  CHECK(runs.saved_steps() == 15);
  CHECK(said("'step_counter'") == 1);
}
