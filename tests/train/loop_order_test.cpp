// The order in which the jobs of the loop act, as in src/train/loop_jobs.hpp and docs/rooms/train.md.
#include "testing.hpp"

#include <cmath>

#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

double saved(const RunState& state, const std::string& key) {
  const auto& value = state.at("loop").values.at(key);
  return std::holds_alternative<double>(value) ? std::get<double>(value) : static_cast<double>(std::get<int64_t>(value));
}

/// Records at each call which other parts have acted before: the name of the call, then "r" for the ranking and "e" for early stopping.
struct Turn final : Callback {
  std::string text;
  int64_t steps = 0, epochs = 0;
  std::string name() const override { return "turn"; }
  State state() const override { return {{}, {{"steps", steps}, {"epochs", epochs}}}; }
  void load_state(const State& state) override {
    steps = state.integer("steps", "turn");
    epochs = state.integer("epochs", "turn");
  }
  void note(TrainLoop& loop, const std::string& place) {
    const auto now = loop.state();
    text += place;
    if (!std::isnan(saved(now, "best_score"))) text += "r";
    if (!std::isnan(saved(now, "early_best"))) text += "e";
    text += " ";
  }
  void on_step_end(TrainLoop& loop, const StepReport& report) override {
    ++steps;
    CHECK(saved(loop.state(), "epoch/samples") == 8 * (report.attempt % 5 + 1));  // the sums include this step
  }
  void on_validation_end(TrainLoop& loop, const Scalars&) override { note(loop, "val:"); }
  void on_epoch_end(TrainLoop& loop, const EpochReport&) override {
    ++epochs;
    note(loop, "epoch:");
  }
  void on_checkpoint(TrainLoop& loop, const std::string&) override { note(loop, "saved:"); }
};

struct OrderedRun {
  TempDir dir;
  Toy toy;
  CheckpointStore store{(dir / "run/checkpoints").string(), {.save_top_k = -1}};
  std::unique_ptr<TrainLoop> loop;
  std::shared_ptr<Turn> turn = std::make_shared<Turn>();
  void build(const TrainerOptions& options, CheckpointOptions checkpoint = {}, EarlyStoppingOptions early = {}) {
    checkpoint.save_top_k = -1;
    checkpoint.async = false;
    loop = toy.loop(options, checkpoint, &store, early);
    loop->add_callback(turn);
  }
};

}  // namespace

TEST_CASE("the end of an epoch: callbacks' on_validation_end, ranking, early stopping, callbacks' on_epoch_end, checkpoint") {
  OrderedRun run;
  run.build({.max_epochs = 1}, {}, {.enabled = true});
  const auto result = run.loop->fit();
  CHECK(run.turn->text == "val: epoch:re saved:re ");
  const auto state = load_checkpoint(result.last_checkpoint);
  CHECK(state.at("callbacks.turn").integer("epochs", "turn") == 1);
  CHECK(saved(state, "best_score") == result.best_score);
  CHECK(saved(state, "epoch") == 1);
  CHECK(read_checkpoint_meta(result.last_checkpoint).score == result.best_score);
  CHECK(read_checkpoint_meta(result.last_checkpoint).serial == 1);  // written once, with the score
}

TEST_CASE("early stopping counts before the checkpoint: a run that it ended does not continue when it is resumed") {
  const EarlyStoppingOptions early{.enabled = true, .patience = 1, .min_delta = 1e6};
  OrderedRun run;
  run.build({.max_epochs = 9}, {}, early);
  const auto result = run.loop->fit();
  CHECK(result.reason == StopReason::EarlyStopping);
  CHECK(result.global_step == 10);
  OrderedRun resumed;
  resumed.build({.max_epochs = 9}, {}, early);
  resumed.loop->load_state(load_checkpoint(result.last_checkpoint));
  const auto again = resumed.loop->fit();
  CHECK(again.reason == StopReason::EarlyStopping);
  CHECK(again.global_step == 10);
}

TEST_CASE("the numbers of a step are reported before it is saved: each checkpoint has the callbacks' states of its step") {
  struct Steps final : Callback {
    int64_t steps = 0, checkpoints = 0;
    std::string name() const override { return "steps"; }
    State state() const override { return {{}, {{"steps", steps}}}; }
    void load_state(const State& state) override { steps = state.integer("steps", "steps"); }
    void on_step_end(TrainLoop&, const StepReport&) override { ++steps; }
    void on_checkpoint(TrainLoop&, const std::string& path) override {
      ++checkpoints;
      CHECK(load_checkpoint(path).at("callbacks.steps").integer("steps", "steps") == read_checkpoint_meta(path).global_step);
    }
  };
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {.save_top_k = -1});
  auto loop = toy.loop({.max_epochs = -1, .max_steps = 7, .check_val_every_n_epoch = 0},
                       {.save_top_k = -1, .every_n_epochs = 0, .every_n_train_steps = 2, .async = false}, &store);
  const auto steps = std::make_shared<Steps>();
  loop->add_callback(steps);
  loop->fit();
  CHECK(steps->steps == 7);
  CHECK(steps->checkpoints == 4);  // at steps 2, 4, 6 and the end
}

TEST_CASE("a step that diverged is reported, and then nothing of it is saved as a checkpoint") {
  struct Poisons final : Callback {
    Toy* toy = nullptr;
    std::vector<int64_t> reported;
    void on_step_end(TrainLoop&, const StepReport& report) override {
      reported.push_back(report.attempt);
      const torch::NoGradGuard no_grad;
      if (report.attempt == 1) toy->net->head->weight.fill_(std::nanf(""));  // step 2 has run
    }
  };
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 1}, {.every_n_train_steps = 4, .async = false}, &store);
  const auto poisons = std::make_shared<Poisons>();
  poisons->toy = &toy;
  loop->add_callback(poisons);
  const auto e = error_of([&] { loop->fit(); });
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(has(e.what(), "the loss is nan at step 3"));  // saving that step would instead report a parameter that is not finite
  CHECK(poisons->reported == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(store.last() == "");
}

TEST_CASE("callbacks are called, and get their states, in the order in which they were added, after the loop has its own") {
  static std::string calls;
  struct Ordered final : Callback {
    explicit Ordered(std::string n) : own(std::move(n)) {}
    std::string name() const override { return own; }
    void load_state(const State&) override { calls += "load " + own + " at " + std::to_string(loop->global_step()) + ", "; }
    void on_epoch_start(TrainLoop&, int64_t) override { calls += "start " + own + ", "; }
    std::string own;
    TrainLoop* loop = nullptr;
  };
  calls.clear();
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1});
  for (const char* name : {"z", "a", "m"}) {
    const auto callback = std::make_shared<Ordered>(name);
    callback->loop = loop.get();
    loop->add_callback(callback);
  }
  loop->fit();
  const auto state = snapshot(*loop);
  loop->train_step({toy_batch()});
  loop->load_state(state);
  CHECK(calls == "start z, start a, start m, load z at 5, load a at 5, load m at 5, ");
}

TEST_CASE("built-in parts have the keys in the part `loop` that checkpoints have had since format 1, and the place in the schedule") {
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1});
  loop->fit();
  const auto state = loop->state();
  std::string keys;
  for (const auto& [key, value] : state.at("loop").values) keys += key + " ";
  CHECK(keys ==
        "attempts batches_seen best_score early_best effective_batch epoch epoch/data_wait epoch/samples epoch/seconds epoch/skipped "
        "epoch/sum/acc1 "
        "epoch/sum/acc5 epoch/sum/loss epoch/weight/acc1 epoch/weight/acc5 epoch/weight/loss global_step lr_factor lr_place lr_there "
        "micro_batch_limit "
        "rollbacks skip_streak skipped validated_step without_improvement ");
}
