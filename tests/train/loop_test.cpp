#include "testing.hpp"

#include "npu_train/train/loop.hpp"

#include <cmath>
#include <thread>

#include "npu_train/core/log.hpp"
#include "toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("fit learns, and its report adds up") {
  Toy toy("32-true", "adamw");
  auto loop = toy.loop({.max_epochs = 30});
  const auto result = loop->fit();
  CHECK(result.reason == StopReason::MaxEpochs);
  CHECK(result.history.size() == 30);
  CHECK(result.global_step == 150);
  CHECK(result.batches_seen == 150);
  CHECK(scalar_or(result.history.back().train, "loss", 9) < 0.5 * scalar_or(result.history.front().train, "loss", 0));
  CHECK(scalar_or(result.final_val, "acc1", 0) > 60);
  CHECK(scalar_or(result.final_val, "acc5", 0) == 100);
}

TEST_CASE("the learning rate follows the schedule in its unit and does not change on a skip") {
  SUBCASE("by epoch") {
    Toy toy;
    toy.schedule = LrSchedule([](double t) { return std::pow(0.1, t); }, true);
    const auto result = toy.loop({.max_epochs = 3})->fit();
    for (int e = 0; e < 3; ++e) CHECK(result.history[static_cast<size_t>(e)].lr == doctest::Approx(0.1 * std::pow(0.1, e)));
  }
  SUBCASE("by step, not moved by a skipped one") {
    Toy toy("16-mixed");
    toy.schedule = LrSchedule([](double t) { return 1.0 / (1 + t); }, false);
    auto loop = toy.loop({.max_epochs = 3});
    auto huge = toy_batch();
    huge.set("input", huge.input() * 1e6);
    CHECK(loop->train_step({toy_batch()}).lr == doctest::Approx(0.1));
    CHECK_FALSE(loop->train_step({huge}).taken);
    CHECK(loop->train_step({toy_batch()}).lr == doctest::Approx(0.05));
    CHECK(loop->global_step() == 2);
    CHECK(loop->skipped_steps() == 1);
    CHECK(loop->batches_seen() == 3);
  }
}

TEST_CASE("limits: steps, time, batches, request, fast_dev_run") {
  SUBCASE("steps, inside an epoch") {
    Toy toy;
    const auto r = toy.loop({.max_epochs = 10, .max_steps = 7})->fit();
    CHECK(r.reason == StopReason::MaxSteps);
    CHECK(r.global_step == 7);
    CHECK_FALSE(r.final_val.empty());
  }
  SUBCASE("steps, at the end of an epoch: the epoch counts") {
    Toy toy;
    CHECK(toy.loop({.max_epochs = 10, .max_steps = 10})->fit().history.size() == 2);
  }
  SUBCASE("time") {
    auto clock = std::make_shared<ManualClock>();
    struct Tick final : Callback {
      std::shared_ptr<ManualClock> clock;
      void on_step_end(TrainLoop&, const StepReport&) override { clock->advance(10); }
    };
    Toy toy;
    auto loop = toy.loop({.max_epochs = 100, .max_time = 35}, {}, nullptr, {}, clock);
    auto tick = std::make_shared<Tick>();
    tick->clock = clock;
    loop->add_callback(tick);
    const auto r = loop->fit();
    CHECK(r.reason == StopReason::MaxTime);
    CHECK(r.global_step <= 6);
  }
  SUBCASE("batches of an epoch") {
    Toy toy;
    CHECK(toy.loop({.max_epochs = 2, .limit_train_batches = 3})->fit().global_step == 6);
  }
  SUBCASE("request from another thread") {
    Toy toy;
    auto loop = toy.loop({.max_epochs = -1});
    std::thread other([&] { loop->request_stop(); });
    const auto r = loop->fit();
    other.join();
    CHECK(r.reason == StopReason::Requested);
  }
  SUBCASE("fast_dev_run") {
    Toy toy;
    const auto r = toy.loop({.max_epochs = 50, .fast_dev_run = true})->fit();
    CHECK(r.reason == StopReason::FastDevRun);
    CHECK(r.global_step == 1);
  }
}

TEST_CASE("accumulation: the last window of an epoch may be partial") {
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1, .accumulate_grad_batches = 2});  // has 5 batches
  CHECK(loop->windows_per_epoch() == 3);
  const auto r = loop->fit();
  CHECK(r.global_step == 3);
  CHECK(r.batches_seen == 5);
}

TEST_CASE("overfit_batches repeats the same batches, in training and validation") {
  Toy toy("32-true", "adamw");
  const auto r = toy.loop({.max_epochs = 60, .overfit_batches = 1})->fit();
  CHECK(r.global_step == 60);
  CHECK(scalar_or(r.final_val, "acc1", 0) == 100);
}

TEST_CASE("validation data that cannot be read are found before the first step") {
  struct Broken final : Dataset {
    int64_t size() const override { return 20; }
    Sample get(int64_t) const override { throw std::runtime_error("no such image"); }
  };
  const auto fit = [](int64_t sanity_steps) {
    Toy toy;
    toy.val = std::make_shared<Broken>();
    const auto before = weights(toy);
    auto loop = toy.loop({.max_epochs = 1, .num_sanity_val_steps = sanity_steps});
    CHECK(has(error_of([&] { loop->fit(); }).what(), "no such image"));
    CHECK((weights(toy) == before) == (sanity_steps > 0));
    CHECK(loop->batches_seen() == loop->global_step());
    return loop->global_step();
  };
  CHECK(fit(2) == 0);
  CHECK(fit(0) == 5);  // without the check, an epoch is lost
}

TEST_CASE("early stopping counts validations without improvement") {
  Toy toy;
  toy.schedule = LrSchedule([](double) { return 0.0; }, true);  // no weight changes, so nothing improves
  auto loop = toy.loop({.max_epochs = 50}, {}, nullptr, {.enabled = true, .monitor = "val/loss", .patience = 3, .min_delta = 1e3});
  const auto r = loop->fit();
  CHECK(r.reason == StopReason::EarlyStopping);
  CHECK(r.history.size() == 4);
  Toy other;
  const auto unknown = [&] { other.loop({.max_epochs = 2}, {}, nullptr, {.enabled = true, .monitor = "val/bleu"}); };
  CHECK(error_of(unknown).kind() == ErrorKind::Usage);
}

TEST_CASE("validation uses the average and puts the weights back") {
  const auto on = [](const at::Tensor& t) { return t.to(device_under_test().c10()); };
  Toy toy("32-true", "sgd");
  toy.with_ema();
  auto loop = toy.loop({.max_epochs = 2, .check_val_every_n_epoch = 0});
  loop->fit();
  const auto before = weights(toy);
  const auto averaged = loop->validate();
  CHECK(weights(toy) == before);
  double by_hand = 0;
  {
    const AverageSwap swap(*toy.average);
    const torch::NoGradGuard no_grad;
    toy.net->eval();
    const auto data = std::dynamic_pointer_cast<TensorDataset>(toy.val);
    by_hand = torch::cross_entropy_loss(toy.net->forward(on(data->inputs())), on(data->targets())).item<double>();
    toy.net->train();
  }
  CHECK(scalar_or(averaged, "loss", 0) == doctest::Approx(by_hand).epsilon(1e-5));
}

TEST_CASE("train_epoch and train_step serve a program that owns its loop") {
  Toy a, b;
  auto owned = a.loop({.max_epochs = 2});
  CHECK(owned->train_epoch()->global_step == 5);
  CHECK(owned->train_epoch()->epoch == 1);
  auto fitted = b.loop({.max_epochs = 2});
  fitted->fit();
  CHECK(weights(a) == weights(b));
  const auto report = owned->train_step({toy_batch()});
  CHECK(report.taken);
  CHECK(report.global_step == 11);
}

TEST_CASE("train_step over the loader's own batches gives the weights of fit, bit for bit") {
  for (const int64_t k : {1, 2}) {  // 5 batches, so with 2 in a window the last window is partial
    CAPTURE(k);
    Toy fitted, owned;
    auto fit = fitted.loop({.max_epochs = 1, .accumulate_grad_batches = k});
    fit->fit();
    auto loop = owned.loop({.max_epochs = 1, .accumulate_grad_batches = k});
    std::vector<Batch> window;
    const auto take = [&] {
      loop->train_step(window);
      window.clear();
    };
    owned.train_loader->begin_epoch(0);
    while (auto batch = owned.train_loader->next()) {
      window.push_back(std::move(*batch));
      if (static_cast<int64_t>(window.size()) == k) take();
    }
    if (!window.empty()) take();
    CHECK(loop->global_step() == fit->global_step());
    CHECK(loop->batches_seen() == 5);
    CHECK(weights(owned) == weights(fitted));
    CHECK(digest(owned.optimizer->state()) == digest(fitted.optimizer->state()));
    CHECK(torch::equal(owned.net->norm->running_var, fitted.net->norm->running_var));
  }
}

TEST_CASE("a program that owns its loop says which epoch it is") {
  Toy toy;
  toy.schedule = LrSchedule([](double t) { return std::pow(0.1, t); }, true);
  auto loop = toy.loop({});
  CHECK(loop->train_step({toy_batch()}).lr == doctest::Approx(0.1));
  loop->set_epoch(2);
  const auto report = loop->train_step({toy_batch()});
  CHECK(report.lr == doctest::Approx(0.001));
  CHECK(report.epoch == 2);
  CHECK(error_of([&] { loop->set_epoch(-1); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the loss of an epoch is weighted as it was trained on") {
  Toy toy;
  // Returns losses 1, 2, 3 ... with weights 1, 2, 3 ...
  struct Counted final : Task {
    explicit Counted(Task& task) : inner(task) {}
    StepOutput training_step(const ForwardContext& context) override {
      const auto n = static_cast<double>(++calls);
      return {inner.training_step(context).loss * 0 + n, n, {}};
    }
    at::Tensor predict(const at::Tensor& input) override { return inner.predict(input); }
    ParameterSet parameters() override { return inner.parameters(); }
    void set_training(bool on) override { inner.set_training(on); }
    void to(c10::Device device) override { inner.to(device); }
    Task& inner;
    int calls = 0;
  } counted(*toy.task);
  auto parts = toy.loop({})->parts();
  parts.task = &counted;
  parts.val_loader = nullptr;
  TrainLoop loop(parts, {.max_epochs = 1}, {}, {});
  CHECK(scalar_or(loop.fit().history[0].train, "loss", 0) == doctest::Approx((1 + 4 + 9 + 16 + 25) / 15.0));
}

TEST_CASE("a task must give one number for each of its metrics, in training and in validation") {
  Toy toy;
  struct Miscounted final : WrappedTask {
    using WrappedTask::WrappedTask;
    std::vector<std::string> metric_names() const override { return {"a", "b", "c", "d", "e", "f", "g"}; }
    at::Tensor metric_sums(const StepOutput&, const Batch&) override { return sums; }
    at::Tensor sums;
  } miscounted(toy.task);
  auto parts = toy.loop({})->parts();
  parts.task = &miscounted;
  TrainLoop loop(parts, {.max_epochs = 1}, {}, {});
  const auto before = weights(toy);
  const auto told = [](const Error& e, const std::string& given) {
    CAPTURE(e.what());
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(has(e.what(), " 7 "));
    CHECK(has(e.what(), " " + given + " "));
  };
  for (const int64_t given : {0, 3, 9}) {  // 0 stands for an undefined tensor
    CAPTURE(given);
    miscounted.sums = given == 0 ? at::Tensor() : torch::ones({given});
    told(error_of([&] { loop.train_step({toy_batch()}); }), std::to_string(given));
    told(error_of([&] { loop.validate(); }), std::to_string(given));
  }
  CHECK(weights(toy) == before);
  CHECK(loop.global_step() == 0);
  miscounted.sums = torch::ones({7});
  CHECK(loop.train_step({toy_batch()}).metrics.size() == 8);
  CHECK(loop.validate().size() == 8);
}

TEST_CASE("max_steps at a partial last window ends the epoch") {
  Toy toy;
  const auto r = toy.loop({.max_epochs = 5, .max_steps = 3, .accumulate_grad_batches = 2})->fit();  // 5 batches: 2 + 2 + 1
  CHECK(r.history.size() == 1);
}

TEST_CASE("train_epoch continues after a stop") {
  Toy toy;
  auto loop = toy.loop({.max_epochs = 9});
  loop->request_stop();
  CHECK_FALSE(loop->train_epoch().has_value());
  CHECK(loop->global_step() == 1);
  CHECK(loop->train_epoch()->global_step == 5);
  CHECK(loop->fit().history.size() == 8);
}

namespace {

/// Requests a stop when the validation has run a number of batches.
struct StopsInValidation final : WrappedTask {
  StopsInValidation(std::shared_ptr<Task> task, int after_batches) : WrappedTask(std::move(task)), after(after_batches) {}
  StepOutput validation_step(const ForwardContext& context) override {
    if (++batches == after && loop != nullptr) loop->request_stop();
    return inner->validation_step(context);
  }
  TrainLoop* loop = nullptr;
  int after, batches = 0;
};

struct StoppedRun {
  explicit StoppedRun(int after, TrainerOptions options = {.max_epochs = 2, .num_sanity_val_steps = 0}) : task(make(toy, after)) {
    loop = toy.loop(options);
    task->loop = loop.get();
  }
  static std::shared_ptr<StopsInValidation> make(Toy& toy, int after) {
    auto stops = std::make_shared<StopsInValidation>(toy.task, after);
    toy.task = stops;
    return stops;
  }
  Toy toy;
  std::shared_ptr<StopsInValidation> task;
  std::unique_ptr<TrainLoop> loop;
};

}  // namespace

TEST_CASE("a stop that is requested during a validation ends it, and the continued run repeats it from its start") {
  Toy whole;
  const auto wanted = whole.loop({.max_epochs = 2, .num_sanity_val_steps = 0})->fit();
  StoppedRun run(1);  // stops in the first of three batches
  auto r = run.loop->fit();
  CHECK(r.reason == StopReason::Requested);
  CHECK(run.task->batches == 1);
  CHECK(r.global_step == 5);  // runs all steps of the epoch, but not its end
  CHECK(run.loop->epoch() == 0);
  CHECK(r.history.empty());
  CHECK(run.loop->validated_step() == -1);
  r = run.loop->fit();
  CHECK(r.reason == StopReason::MaxEpochs);
  REQUIRE(r.history.size() == 2);
  CHECK(run.task->batches == 1 + 3 + 3);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(r.history[i].val == wanted.history[i].val);
    CHECK(r.history[i].train == wanted.history[i].train);
  }
  CHECK(weights(run.toy) == weights(whole));
  CHECK(run.loop->validated_step() == 10);
}

TEST_CASE("a stop that is requested during the last validation of a run without a complete epoch") {
  StoppedRun run(2, {.max_epochs = 2, .max_steps = 3, .num_sanity_val_steps = 0});
  CHECK(run.loop->fit().reason == StopReason::Requested);
  CHECK(run.task->batches == 2);
}

TEST_CASE("a stop that is requested during the sanity check ends the run before its first step") {
  StoppedRun run(1, {.max_epochs = 2, .num_sanity_val_steps = 3});
  const auto r = run.loop->fit();
  CHECK(r.reason == StopReason::Requested);
  CHECK(r.global_step == 0);
  CHECK(run.task->batches == 1);
}

TEST_CASE("a validation that a program asks for is not ended by a stop") {
  StoppedRun run(1);
  CHECK(run.loop->validate().size() >= 2);
  CHECK(run.task->batches == 3);
}

TEST_CASE("a window that threw leaves no gradient behind") {
  Toy toy, clean;
  auto bad = toy_batch();
  bad.set("target", torch::zeros({8, 2, 2}));
  auto loop = toy.loop({});
  CHECK(error_of([&] { loop->train_step({toy_batch(8, 1), bad}); }).kind() == ErrorKind::Usage);
  loop->train_step({toy_batch(8, 2)});
  // The forward that succeeded has changed the statistics of BatchNorm, which training does not read, so the weights must be equal.
  clean.loop({})->train_step({toy_batch(8, 2)});
  CHECK(weights(toy) == weights(clean));
}

namespace {

/// The toy's task, in which no target counts in the micro-batches with these numbers.
struct Uncounted final : WrappedTask {
  Uncounted(std::shared_ptr<Task> task, std::vector<int64_t> numbers) : WrappedTask(std::move(task)), without(std::move(numbers)) {}
  StepOutput training_step(const ForwardContext& context) override {
    auto out = inner->training_step(context);
    const bool counts = std::find(without.begin(), without.end(), seen++) == without.end();
    if (!counts) out.loss = out.loss * kNaN, out.weight = 0;  // a mean over nothing
    return out;
  }
  StepOutput validation_step(const ForwardContext& context) override { return inner->validation_step(context); }
  std::vector<int64_t> without;
  int64_t seen = 0;
};

}  // namespace

TEST_CASE("a window in which no target counts is skipped and counted, and moves only the position") {
  for (const char* mode : {"32-true", "16-mixed"}) {
    CAPTURE(mode);
    Toy toy(mode, "adamw");
    toy.with_ema();
    toy.task = std::make_shared<Uncounted>(toy.task, std::vector<int64_t>{1, 3});
    auto loop = toy.loop({.max_epochs = 1, .gradient_clip_val = 1, .num_sanity_val_steps = 0});
    struct Reports final : Callback {
      std::vector<StepReport> all;
      void on_step_end(TrainLoop&, const StepReport& report) override { all.push_back(report); }
    };
    const auto reports = std::make_shared<Reports>();
    loop->add_callback(reports);
    const auto result = loop->fit();
    CHECK(result.global_step == 3);
    CHECK(result.skipped_steps == 2);
    CHECK(result.batches_seen == 5);
    CHECK(std::isfinite(scalar_or(result.history.at(0).train, "loss", kNaN)));
    REQUIRE(reports->all.size() == 5);
    for (size_t i = 0; i < 5; ++i) {
      CHECK(reports->all[i].empty == (i == 1 || i == 3));
      CHECK(reports->all[i].taken == !reports->all[i].empty);
      CHECK(std::isnan(scalar_or(reports->all[i].metrics, "loss", 0)) == reports->all[i].empty);
    }
    // The weights are those of a run without these windows.
    Toy clean(mode, "adamw");
    clean.with_ema();
    auto kept = clean.loop({.max_epochs = 1, .gradient_clip_val = 1, .num_sanity_val_steps = 0});
    clean.train_loader->begin_epoch(0);
    for (int64_t i = 0; i < 5; ++i) {
      const auto batch = to_device(*clean.train_loader->next(), device_under_test());
      if (i != 1 && i != 3) kept->train_step({batch});
    }
    CHECK(weights(toy) == weights(clean));
    CHECK(toy.precision->scale() == clean.precision->scale());
    CHECK(digest(toy.average->averages()) == digest(clean.average->averages()));
  }
}

TEST_CASE("an epoch in which no target counts ends the run, instead of one that never ends") {
  Toy toy;
  toy.task = std::make_shared<Uncounted>(toy.task, std::vector<int64_t>{0, 1, 2, 3, 4});
  auto loop = toy.loop({.max_epochs = -1, .max_steps = 5});
  const auto e = error_of([&] { loop->fit(); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(has(e.what(), "no target of epoch 0 counts"));
}

TEST_CASE("a validation whose loss is not finite warns, and its checkpoint is never the best one") {
  struct Bad final : Dataset {
    int64_t size() const override { return 8; }
    Sample get(int64_t i) const override {
      return {{{"input", torch::full({6}, i == 0 && bad ? std::nanf("") : 1.0F)}, {"target", torch::zeros({}, torch::kLong)}}, i};
    }
    bool bad = true;
  };
  std::vector<std::string> warnings;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) warnings.emplace_back(text);
  });
  TempDir dir;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  Toy toy;
  const auto val = std::make_shared<Bad>();
  toy.val = val;
  auto loop = toy.loop({.max_epochs = 1, .num_sanity_val_steps = 0}, {.monitor = "val/acc5"}, &store);
  const auto result = loop->fit();
  CHECK(std::isfinite(scalar_or(result.final_val, "acc5", kNaN)));
  CHECK(std::isnan(result.best_score));
  CHECK(result.best_checkpoint == "");
  CHECK_FALSE(result.last_checkpoint.empty());
  CHECK(std::any_of(warnings.begin(), warnings.end(), [](const auto& w) { return has(w, "the validation loss is nan after step 5"); }));
  val->bad = false;
  Toy good;
  good.val = val;
  CHECK(std::isfinite(good.loop({.max_epochs = 1}, {.monitor = "val/acc5"}, &store)->fit().best_score));
}

TEST_CASE("limit_val_batches 0 switches validation off, and an epoch without a batch is reported") {
  Toy toy;
  CHECK(toy.loop({.max_epochs = 2, .limit_val_batches = 0})->fit().final_val.empty());
  Toy empty;
  auto loop = empty.loop({.max_epochs = -1, .max_steps = 5, .limit_train_batches = 0});
  CHECK(error_of([&] { loop->fit(); }).kind() == ErrorKind::Data);
}
