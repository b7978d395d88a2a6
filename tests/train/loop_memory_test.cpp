// trainer.on_oom, and the data for a report when memory runs out.
#include "testing.hpp"

#include "npu_train/train/loop.hpp"

#include "dist/in_process.hpp"
#include "npu_train/device/random.hpp"
#include "toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Wraps another task, for behaviour that differs at sizes above `most`.
struct Around : WrappedTask {
  Around(std::shared_ptr<Task> task, int64_t largest) : WrappedTask(std::move(task)), most(largest) {}
  int64_t most;
};

// Runs out of memory at the end of a forward with more than `most` samples: statistics and random numbers have changed by then.
class Narrow final : public Around {
 public:
  using Around::Around;
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    auto out = inner->training_step(context);
    if (batch.rows() > most) C10_THROW_ERROR(OutOfMemoryError, "NPU out of memory. Tried to allocate too much");
    return out;
  }
};

TrainerOptions retrying() { return {.on_oom = "retry"}; }

std::vector<uint64_t> everything(const Toy& toy, const TrainLoop& loop) {
  const auto state = loop.state();
  std::vector<uint64_t> out = {digest(state.at("optimizer")), digest(state.at("scaler")), digest(state.at("rng"))};
  for (const auto& [name, tensor] : state.at("model").tensors) out.push_back(digest(tensor));
  out.push_back(weights(toy));
  return out;
}

// Has too little memory for validations and predictions of more than `most` samples.
class NarrowForward final : public Around {
 public:
  using Around::Around;
  at::Tensor predict(const at::Tensor& input) override {
    if (input.size(0) > most) C10_THROW_ERROR(OutOfMemoryError, "NPU out of memory");
    return inner->predict(input);
  }
  StepOutput validation_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    predict(batch.input());
    return inner->validation_step(context);
  }
};

class OutOfMemoryAt final : public StepObserver {
 public:
  explicit OutOfMemoryAt(Phase phase) : phase_(phase) {}
  void phase_begin(Phase phase, int64_t, int) override {
    if (phase == phase_) C10_THROW_ERROR(OutOfMemoryError, "out of memory");
  }

 private:
  Phase phase_;
};

}  // namespace

TEST_CASE("a window that does not fit is repeated in halves, bit for bit as if it had come so") {
  for (const std::string mode : {"32-true", "16-mixed", "bf16-true"}) {
    CAPTURE(mode);
    const auto run = [&](bool whole) {
      Toy toy(mode, "adamw", /*dropout=*/0.3, {.init_scale = 16});
      toy.task = std::make_shared<Narrow>(toy.task, 2);
      auto loop = toy.loop(retrying());
      std::vector<double> losses;
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        const auto batch = toy_batch(8, seed);
        torch::manual_seed(seed);
        std::vector<Batch> window = {batch};
        if (!whole) window = {batch.narrow(0, 2), batch.narrow(2, 2), batch.narrow(4, 2), batch.narrow(6, 2)};
        const auto report = loop->train_step(window);
        losses.push_back(scalar_or(report.metrics, "loss", -1));
        CHECK(report.samples == 8);
      }
      CHECK(loop->micro_batch_limit() == (whole ? 2 : 0));
      CHECK(loop->global_step() == 3);
      CHECK_FALSE(loop->take_failed_window());
      return std::pair(everything(toy, *loop), losses);
    };
    const auto retried = run(true), begun_so = run(false);
    CHECK(retried.first == begun_so.first);
    CHECK(retried.second == begun_so.second);
  }
}

TEST_CASE("an odd batch is cut as a loader of the smaller size would cut it") {
  Toy toy, cut;
  toy.task = std::make_shared<Narrow>(toy.task, 4);
  auto loop = toy.loop(retrying()), other = cut.loop({});
  const auto batch = toy_batch(7);
  loop->train_step({batch});
  other->train_step({batch.narrow(0, 4), batch.narrow(4, 3)});
  CHECK(loop->micro_batch_limit() == 4);
  CHECK(weights(toy) == weights(cut));
}

TEST_CASE("the smaller micro-batches are kept in a checkpoint, and older ones know none") {
  Toy toy, later;
  toy.task = std::make_shared<Narrow>(toy.task, 4);
  auto loop = toy.loop(retrying()), resumed = later.loop({});
  loop->train_step({toy_batch()});
  auto state = snapshot(*loop);
  resumed->load_state(state);
  CHECK(resumed->micro_batch_limit() == 4);
  state.at("loop").values.erase("micro_batch_limit");
  resumed->load_state(state);
  CHECK(resumed->micro_batch_limit() == 0);
}

TEST_CASE("where one sample does not fit the run ends, and nothing of the window stays") {
  Toy toy("32-true", "adamw", 0.3);
  toy.task = std::make_shared<Narrow>(toy.task, 0);
  auto loop = toy.loop(retrying());
  const auto batch = toy_batch();
  const auto before = everything(toy, *loop);
  const auto error = error_of([&] { loop->train_step({batch}); });
  CHECK(error.kind() == ErrorKind::OutOfMemory);
  CHECK(everything(toy, *loop) == before);
  for (const auto& p : toy.task->parameters()) CHECK_FALSE(p.value.grad().defined());
  const auto failed = loop->take_failed_window();
  REQUIRE(failed);
  CHECK(failed->batches.size() == 4);  // two samples each: BatchNorm1d rejects a single one, and that error did not end the run
  CHECK(loop->micro_batch_limit() == 0);
  CHECK((failed->phase == Phase::Forward));
  CHECK_FALSE(loop->take_failed_window());
}

TEST_CASE("stop: the first failure ends the run, with its window") {
  Toy toy;
  toy.task = std::make_shared<Narrow>(toy.task, 4);
  auto loop = toy.loop({});
  CHECK(error_of([&] { loop->train_step({toy_batch(4), toy_batch()}); }).exit_code() == 8);
  const auto failed = loop->take_failed_window();
  REQUIRE(failed);
  CHECK(failed->micro_batch == 1);
  CHECK(loop->micro_batch_limit() == 0);
}

TEST_CASE("once the optimizer has begun nothing is repeated") {
  for (const auto phase : {Phase::Optimizer, Phase::Clip}) {
    Toy toy;
    auto loop = toy.loop(retrying());
    OutOfMemoryAt observer(phase);
    loop->observers().add(&observer);
    CHECK(error_of([&] { loop->train_step({toy_batch()}); }).kind() == ErrorKind::OutOfMemory);
    CHECK((loop->take_failed_window()->phase == phase));
    CHECK(loop->micro_batch_limit() == 0);
  }
}

TEST_CASE("several ranks cannot retry, and hear it before they begin") {
  Toy toy;
  toy.strategy = std::make_shared<ReplicatedRank>(std::make_shared<Exchange>(2), 0);
  const auto error = error_of([&] { toy.loop(retrying()); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "trainer.on_oom"));
}

TEST_CASE("a batch that cannot be copied: stop names the copy, retry continues with batches that stay on the host") {
  OutOfMemoryAt observer(Phase::Transfer);
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1, .accumulate_grad_batches = 2});
  loop->observers().add(&observer);
  CHECK(error_of([&] { loop->fit(); }).kind() == ErrorKind::OutOfMemory);
  const auto failed = loop->take_failed_window();
  REQUIRE(failed);
  CHECK((failed->phase == Phase::Transfer));
  CHECK((failed->pass == Pass::Training));
  CHECK(failed->batches.size() == 1);
  CHECK(failed->micro_batches == 2);

  Toy retried, plain;
  auto other = retried.loop(retrying()), expected = plain.loop({});
  other->observers().add(&observer);
  const auto a = other->train_epoch(), b = expected->train_epoch();
  CHECK(a->train == b->train);
  CHECK(weights(retried) == weights(plain));
  CHECK(other->micro_batch_limit() == 0);
}

TEST_CASE("batches that stay on the host are finished there, completely, before they are split") {
  const auto mixing = [](Batch batch) {
    batch.pending.emplace_back([](Batch there) {
      there.set("input", at::roll(there.input(), 1, 0));
      return there;
    });
    return batch;
  };
  const auto trained = [&](bool pending, int64_t most) {
    OutOfMemoryAt observer(Phase::Transfer);
    Toy toy;
    toy.task = std::make_shared<Narrow>(toy.task, most);
    auto options = retrying();
    options.check_val_every_n_epoch = 0;
    auto loop = toy.loop(options);
    const auto finish = [&](Batch batch) { return pending ? mixing(std::move(batch)) : mixing(std::move(batch)).finished(); };
    *toy.train_loader = Loader(toy.train, Pipeline(), {.batch_size = 8, .shuffle = true, .seed = 7, .finish = finish});
    loop->observers().add(&observer);
    loop->train_epoch();
    return weights(toy);
  };
  CHECK(trained(true, 8) == trained(false, 8));
  CHECK(trained(true, 4) == trained(false, 4));
}

TEST_CASE("of a validation, of the one before the first step, and of a prediction the batch is kept for the report") {
  Toy toy;
  toy.val = toy_data(12, 4);
  toy.task = std::make_shared<NarrowForward>(toy.task, 7);
  auto loop = toy.loop({.max_epochs = 1, .num_sanity_val_steps = 1});
  CHECK(error_of([&] { loop->fit(); }).kind() == ErrorKind::OutOfMemory);
  auto failed = loop->take_failed_window();
  REQUIRE(failed);
  CHECK((failed->pass == Pass::Sanity));
  CHECK((failed->phase == Phase::Forward));
  CHECK(failed->batches.at(0).rows() == 8);
  CHECK(error_of([&] { loop->validate(); }).kind() == ErrorKind::OutOfMemory);
  failed = loop->take_failed_window();
  REQUIRE(failed);
  CHECK((failed->pass == Pass::Validation));
  CHECK(error_of([&] { loop->predict(torch::zeros({9, 6})); }).kind() == ErrorKind::OutOfMemory);
  failed = loop->take_failed_window();
  REQUIRE(failed);
  CHECK((failed->pass == Pass::Prediction));
  CHECK(failed->batches.at(0).rows() == 9);
}
