#include "testing.hpp"

#include "npu_train/train/passes.hpp"

#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const auto& t : tensors) out.push_back(t.detach().clone());
  return out;
}

// Records the gradients that a step unscales.
struct BeforeUnscale final : StepObserver {
  explicit BeforeUnscale(const Toy& toy) : toy(toy) {}
  void phase_begin(Phase phase, int64_t, int) override {
    if (phase == Phase::Unscale) gradients = copies_of(toy.optimizer->parameters().grads());
  }
  const Toy& toy;
  std::vector<at::Tensor> gradients;
};

struct Phases final : StepObserver {
  void phase_begin(Phase phase, int64_t, int micro_batch) override { seen += str_cat(phase_name(phase), " ", micro_batch, "\n"); }
  std::string seen;
};

}  // namespace

TEST_CASE("passes: a window without an update has the gradients and buffers of a step, in every precision") {
  const std::vector<Batch> window{toy_batch(8, 5), toy_batch(4, 6)};  // the batches have different weights
  for (const std::string mode : {"32-true", "16-mixed", "bf16-true"}) {
    CAPTURE(mode);
    Toy stepped(mode), passed(mode);
    BeforeUnscale seen(stepped);
    stepped.observers.add(&seen);
    stepped.step().run(window);
    const auto before = weights(passed);
    npu_train::detail::run_window(*passed.task, *passed.precision, window);
    const auto gradients = passed.optimizer->parameters().grads();
    REQUIRE(gradients.size() == seen.gradients.size());
    REQUIRE(gradients.size() == 6);
    for (size_t i = 0; i < gradients.size(); ++i) CHECK(at::equal(gradients[i], seen.gradients[i]));
    CHECK(weights(passed) == before);
    CHECK(at::equal(passed.net->norm->running_mean, stepped.net->norm->running_mean));
  }
}

TEST_CASE("passes: batches of a window are brought one by one, as phases of it") {
  Toy toy;
  Phases phases;
  Observers observers;
  observers.add(&phases);
  int64_t brought = 0;
  const std::vector<Batch> window{toy_batch(), toy_batch()};
  const auto elsewhere = [](const Batch& batch) { return batch.map([](const at::Tensor& t) { return t.to(at::kMeta); }); };
  npu_train::detail::run_window(*toy.task, *toy.precision, {elsewhere(window[0]), window[1]}, observers, [&](const Batch&) {
    ++brought;
    return window[0];
  });
  CHECK(brought == 1);
  CHECK(phases.seen == "transfer 0\nforward 0\nbackward 0\nforward 1\nbackward 1\n");
}

TEST_CASE("passes: an output that is no loss is an error that names the pass") {
  struct NoLoss final : Task {
    StepOutput training_step(const ForwardContext&) override { return {at::ones({2}), 1, {}}; }
    at::Tensor predict(const at::Tensor& x) override { return x; }
    ParameterSet parameters() override { return {}; }
    void set_training(bool) override {}
    void to(c10::Device) override {}
  } task;
  const Precision fp32;
  const auto training = error_of([&] { npu_train::detail::training_output(task, fp32, toy_batch()); });
  CHECK(training.kind() == ErrorKind::Usage);
  CHECK(has(training.what(), "[TrainStep] the task's loss must be one number"));
  CHECK(has(error_of([&] { npu_train::detail::validation_output(task, fp32, toy_batch()); }).what(),
            "[Trainer::validate] the task's loss must be"));
}
