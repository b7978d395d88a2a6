#include "testing.hpp"

#include "npu_train/train/loop.hpp"

#include <cmath>
#include <thread>

#include "npu_train/base/digest.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

uint64_t weights(const Toy& toy) { return digest(toy.optimizer->parameters()); }

RunState snapshot(const TrainLoop& loop) {
  auto s = loop.state();
  for (auto& [part, content] : s)
    for (auto& [name, tensor] : content.tensors) tensor = tensor.clone();
  return s;
}

}  // namespace

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

TEST_CASE("the learning rate follows the schedule in its unit and stands still on a skip") {
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
  auto loop = toy.loop({.max_epochs = 1, .accumulate_grad_batches = 2});  // 5 batches
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

TEST_CASE("early stopping counts validations without improvement") {
  Toy toy;
  toy.schedule = LrSchedule([](double) { return 0.0; }, true);  // nothing moves, so nothing improves
  auto loop = toy.loop({.max_epochs = 50}, {}, nullptr, {.enabled = true, .monitor = "val/loss", .patience = 3, .min_delta = 1e3});
  const auto r = loop->fit();
  CHECK(r.reason == StopReason::EarlyStopping);
  CHECK(r.history.size() == 4);
  Toy other;
  auto unknown = other.loop({.max_epochs = 2}, {}, nullptr, {.enabled = true, .monitor = "val/bleu"});
  CHECK(error_of([&] { unknown->fit(); }).kind() == ErrorKind::Usage);
}

TEST_CASE("N steps, state, N steps equal 2N steps, bit for bit") {
  for (const char* mode : {"32-true", "16-mixed"}) {
    for (const int64_t at : {3, 5, 7}) {  // inside an epoch, at its end, inside the next
      CAPTURE(mode);
      CAPTURE(at);
      const auto options = [](int64_t steps) { return TrainerOptions{.max_epochs = -1, .max_steps = steps, .check_val_every_n_epoch = 0}; };
      Toy whole(mode, "sgd", 0.5);
      whole.with_ema();
      auto whole_loop = whole.loop(options(12));
      whole_loop->fit();

      Toy half(mode, "sgd", 0.5);
      half.with_ema();
      auto half_loop = half.loop(options(at));
      half_loop->fit();
      const auto state = snapshot(*half_loop);

      torch::manual_seed(999);
      Toy rest(mode, "sgd", 0.5);
      rest.with_ema();
      auto rest_loop = rest.loop(options(12));
      rest_loop->load_state(state);
      rest_loop->fit();
      CHECK(weights(rest) == weights(whole));
      CHECK(digest(rest.ema->state()) == digest(whole.ema->state()));
      CHECK(digest(rest.optimizer->state()) == digest(whole.optimizer->state()));
      CHECK(digest(rest.precision->state()) == digest(whole.precision->state()));
    }
  }
}

TEST_CASE("a checkpoint of another precision can be resumed") {
  Toy full("32-true");
  auto from = full.loop({.max_epochs = 1});
  from->fit();
  Toy low("bf16-true");
  auto to = low.loop({.max_epochs = 2});
  to->load_state(snapshot(*from), {"scaler"});
  CHECK(weights(low) == weights(full));  // masters are fp32 and equal
  CHECK(torch::equal(low.net->head->weight, full.net->head->weight.to(at::kBFloat16)));
  CHECK(to->fit().history.size() == 1);
}

TEST_CASE("another model's checkpoint is refused and changes nothing") {
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1});
  auto state = snapshot(*loop);
  const auto before = weights(toy);
  SUBCASE("misshapen") { state["model"].tensors["head.weight"] = torch::zeros({5, 16}); }
  SUBCASE("missing") { state["model"].tensors.erase("head.bias"); }
  SUBCASE("more") { state["model"].tensors["other"] = torch::zeros({1}); }
  SUBCASE("no optimizer") { state.erase("optimizer"); }
  CHECK(error_of([&] { loop->load_state(state); }).kind() == ErrorKind::Checkpoint);
  CHECK(weights(toy) == before);
}

TEST_CASE("a loss that is not finite ends the run; last and best stay whole") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 1}, {}, &store);
  loop->fit();
  const auto last = store.last();
  const auto good = digest(load_checkpoint(last).at("model"));
  auto poisoned = toy.loop({.max_epochs = 5}, {}, &store);
  {
    const torch::NoGradGuard no_grad;
    toy.net->head->weight.fill_(std::nanf(""));
  }
  const auto e = error_of([&] { poisoned->fit(); });
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(std::string(e.what()).find("loss is nan") != std::string::npos);
  CHECK(store.last() == last);
  CHECK(digest(load_checkpoint(last).at("model")) == good);
  CHECK(std::filesystem::exists(dir / "run/diverged/manifest.json"));
}

TEST_CASE("weights that are not finite are never written as last") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 1}, {}, &store);
  {
    const torch::NoGradGuard no_grad;
    toy.net->norm->bias[0] = INFINITY;
  }
  CHECK(error_of([&] { loop->save_checkpoint(); }).kind() == ErrorKind::Diverged);
  CHECK(store.last() == "");
}

TEST_CASE("overflows at the floor of the scale end the run with the cause") {
  Toy toy("16-mixed", "sgd", 0, {.init_scale = 4, .min_scale = 1});
  toy.train = std::make_shared<TensorDataset>(torch::randn({40, 6}) * 1e6, torch::zeros({40}, torch::kLong), 4);
  toy.val = toy.train;
  const auto before = weights(toy);
  auto loop = toy.loop({.max_epochs = 100, .num_sanity_val_steps = 0, .max_consecutive_skips = 6});
  const auto e = error_of([&] { loop->fit(); });
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(std::string(e.what()).find("floor") != std::string::npos);
  CHECK(weights(toy) == before);
  CHECK(loop->global_step() == 0);
}

TEST_CASE("rollback goes back to the last checkpoint with a lower rate") {
  TempDir dir;
  struct Poison final : Callback {
    Toy* toy;
    bool armed = true;
    void on_epoch_start(TrainLoop&, int64_t epoch) override {
      if (epoch != 2 || !std::exchange(armed, false)) return;
      const torch::NoGradGuard no_grad;
      toy->net->head->weight.fill_(std::nanf(""));
    }
  };
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 4, .on_divergence = "rollback"}, {}, &store);
  auto poison = std::make_shared<Poison>();
  poison->toy = &toy;
  loop->add_callback(poison);
  const auto r = loop->fit();
  CHECK(r.history.size() == 4);
  CHECK(r.history.back().lr == doctest::Approx(0.01));
  CHECK(torch::isfinite(toy.net->head->weight).all().item<bool>());
}

TEST_CASE("validation uses the average and puts the weights back") {
  Toy toy("32-true", "sgd");
  toy.with_ema();
  auto loop = toy.loop({.max_epochs = 2, .check_val_every_n_epoch = 0});
  loop->fit();
  const auto before = weights(toy);
  const auto averaged = loop->validate();
  CHECK(weights(toy) == before);
  double by_hand = 0;
  {
    const EmaSwap swap(*toy.ema);
    const torch::NoGradGuard no_grad;
    toy.net->eval();
    const auto data = std::dynamic_pointer_cast<TensorDataset>(toy.val);
    by_hand = torch::cross_entropy_loss(toy.net->forward(data->inputs()), data->targets()).item<double>();
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
  // losses 1, 2, 3 ... with weights 1, 2, 3 ...
  struct Counted final : Task {
    explicit Counted(Task& task) : inner(task) {}
    StepOutput training_step(const Batch& batch) override {
      const auto n = static_cast<double>(++calls);
      return {inner.training_step(batch).loss * 0 + n, n, {}};
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

TEST_CASE("the end of a run is saved, whatever the schedule of checkpoints") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {});
  toy.loop({.max_epochs = 2}, {.every_n_epochs = 0}, &store)->fit();
  CHECK(read_checkpoint_meta(store.last()).global_step == 10);
}

TEST_CASE("a score belongs to the weights that were validated: a later save inside an epoch does not become best") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {.monitor = "val/acc1", .save_top_k = 1});
  auto loop = toy.loop({.max_epochs = 1}, {.monitor = "val/acc1"}, &store);
  loop->fit();
  const auto best = store.best();
  loop->train_step({toy_batch()});
  loop->save_checkpoint();
  CHECK(store.best() == best);
  CHECK(std::isnan(read_checkpoint_meta(store.last()).score));
}

TEST_CASE("max_steps at a partial last window ends the epoch") {
  Toy toy;
  const auto r = toy.loop({.max_epochs = 5, .max_steps = 3, .accumulate_grad_batches = 2})->fit();  // 5 batches: 2 + 2 + 1
  CHECK(r.history.size() == 1);
}

TEST_CASE("train_epoch goes on after a stop") {
  Toy toy;
  auto loop = toy.loop({.max_epochs = 9});
  loop->request_stop();
  CHECK_FALSE(loop->train_epoch().has_value());
  CHECK(loop->global_step() == 1);
  CHECK(loop->train_epoch()->global_step == 5);
  CHECK(loop->fit().history.size() == 8);
}

TEST_CASE("a window that threw leaves no gradient behind") {
  Toy toy, clean;
  auto bad = toy_batch();
  bad.set("target", torch::zeros({8, 2, 2}));
  auto loop = toy.loop({});
  CHECK(error_of([&] { loop->train_step({toy_batch(8, 1), bad}); }).kind() == ErrorKind::Usage);
  loop->train_step({toy_batch(8, 2)});
  // the forward that came through has moved the statistics of BatchNorm, which training does not read: the weights must agree
  clean.loop({})->train_step({toy_batch(8, 2)});
  CHECK(weights(toy) == weights(clean));
}

TEST_CASE("at the end of an epoch a run may go on with another batch size") {
  Toy toy, other;
  auto loop = toy.loop({.max_epochs = 1});
  loop->fit();
  auto next = other.loop({.max_epochs = 2});
  other.train_loader = std::make_unique<Loader>(other.train, Pipeline(), LoaderOptions{.batch_size = 4, .shuffle = true, .seed = 7});
  auto parts = next->parts();
  parts.train_loader = other.train_loader.get();
  TrainLoop resumed(parts, {.max_epochs = 2}, {}, {});
  resumed.load_state(snapshot(*loop));
  CHECK(resumed.fit().history.size() == 1);
}

TEST_CASE("limit_val_batches 0 switches validation off, and an epoch without a batch is told") {
  Toy toy;
  CHECK(toy.loop({.max_epochs = 2, .limit_val_batches = 0})->fit().final_val.empty());
  Toy empty;
  auto loop = empty.loop({.max_epochs = -1, .max_steps = 5, .limit_train_batches = 0});
  CHECK(error_of([&] { loop->fit(); }).kind() == ErrorKind::Data);
}
