// A run in slices, each stopped inside an epoch by max_steps or max_time and resumed from its checkpoint, compared with a run that nothing
// stops: weights, counters, early stopping, ranking, and the states of callbacks.
#include "testing.hpp"

#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Counts its calls, keeps a sum that starts with each epoch, and lowers the rate after validations, as ReduceLROnPlateau does.
struct Watcher final : Callback {
  std::string name() const override { return "watcher"; }
  State state() const override {
    return {{},
            {{"starts", starts}, {"steps", steps}, {"validations", validations}, {"ends", ends}, {"in_epoch", in_epoch}, {"seen", seen}}};
  }
  void load_state(const State& state) override {
    starts = state.integer("starts", name()), steps = state.integer("steps", name()), ends = state.integer("ends", name());
    validations = state.integer("validations", name());
    in_epoch = state.number("in_epoch", name()), seen = state.number("seen", name());
  }
  void on_epoch_start(TrainLoop&, int64_t) override {
    ++starts;
    in_epoch = 0;
  }
  void on_step_end(TrainLoop&, const StepReport& report) override {
    ++steps;
    in_epoch += scalar_or(report.metrics, "loss", kNaN);
    clock->advance(10);
  }
  void on_validation_end(TrainLoop& loop, const Scalars& metrics) override {
    seen += scalar_or(metrics, "loss", kNaN);
    if (++validations % 3 == 0) loop.set_lr_factor(loop.lr_factor() * 0.5);
  }
  void on_stop_validation(TrainLoop&, const Scalars&) override { ++reported; }
  void on_epoch_end(TrainLoop&, const EpochReport&) override { ++ends; }

  std::shared_ptr<ManualClock> clock;
  int64_t starts = 0, steps = 0, validations = 0, ends = 0, reported = 0;
  double in_epoch = 0, seen = 0;
};

struct SliceEnd {
  uint64_t weights = 0;
  RunState state;
  RunResult result;
  int64_t reported = 0;
};

// Runs from `checkpoint`, unless it is empty, to the limits of `options`.
SliceEnd run_slice(CheckpointStore& store, const std::string& checkpoint, TrainerOptions options, const std::string& monitor) {
  Toy toy("32-true", "sgd", 0.1);
  const auto clock = std::make_shared<ManualClock>();
  const auto watcher = std::make_shared<Watcher>();
  watcher->clock = clock;
  options.num_sanity_val_steps = 0;
  auto loop = toy.loop(options, {.monitor = monitor, .every_n_epochs = 0}, &store,
                       {.enabled = true, .monitor = monitor, .patience = 100, .min_delta = 1e3}, clock);
  loop->add_callback(watcher);
  if (!checkpoint.empty()) loop->load_state(load_checkpoint(checkpoint));
  SliceEnd out;
  out.result = loop->fit();
  out.weights = weights(toy);
  out.state = snapshot(*loop);
  out.reported = watcher->reported;
  for (const char* key : {"epoch/seconds", "epoch/data_wait"}) out.state["loop"].values.erase(key);
  return out;
}

// Returns the names of the values that differ.
std::string other_values(const State& a, const State& b) {
  std::string out;
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const auto& [name, value] : from->values)
      if (const auto found = to->values.find(name); found == to->values.end() || !(found->second == value)) out += name + " ";
  return out;
}

}  // namespace

TEST_CASE("a run in slices of 3, 4 and 7 steps has the states of the run that is not stopped, whatever a stop adds") {
  constexpr int64_t kEpochs = 4, kSteps = 20;
  int64_t reported = 0;  // number of validations that stops have added
  for (const char* monitor : {"val/loss", "train/loss"})
    for (const char* interval : {"1.0", "2", "0.4"}) {
      TempDir dir;
      CheckpointStore store_of_all((dir / "all/checkpoints").string(), {.save_top_k = -1});
      const auto all = run_slice(store_of_all, "", {.max_epochs = kEpochs, .val_check_interval = interval}, monitor);
      REQUIRE(all.result.global_step == kSteps);
      CHECK(all.reported == 0);
      for (const int64_t slice : {3, 4, 7})
        for (const bool by_time : {false, true}) {
          CAPTURE(monitor);
          CAPTURE(interval);
          CAPTURE(slice);
          CAPTURE(by_time);
          const auto name = std::to_string(slice) + (by_time ? "t" : "s");
          CheckpointStore store((dir / name / "checkpoints").string(), {.save_top_k = -1});
          std::string checkpoint;
          SliceEnd end;
          int64_t steps = 0;
          for (int tries = 0; steps < kSteps && tries < 20; ++tries) {
            TrainerOptions options{.max_epochs = kEpochs, .val_check_interval = interval};
            by_time ? void(options.max_time = 10.0 * static_cast<double>(slice - 1)) : void(options.max_steps = steps + slice);
            end = run_slice(store, checkpoint, options, monitor);
            CHECK_FALSE(end.result.final_val.empty());
            checkpoint = end.result.last_checkpoint;
            steps = end.result.global_step;
            reported += end.reported;
          }
          REQUIRE(steps == kSteps);
          CHECK(end.weights == all.weights);
          for (const char* part : {"callbacks.watcher", "loop"}) CHECK(other_values(end.state.at(part), all.state.at(part)) == "");
        }
    }
  CHECK(reported > 20);
}

TEST_CASE("the validation of a stop gives the checkpoint its score, and the best score of the result includes it") {
  TempDir dir;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  const auto end = run_slice(store, "", {.max_epochs = 4, .max_steps = 3}, "val/loss");
  const double loss = scalar_or(end.result.final_val, "loss", kNaN);
  CHECK(read_checkpoint_meta(end.result.last_checkpoint).score == loss);
  CHECK(end.result.best_score == loss);
  CHECK(std::isnan(load_checkpoint(end.result.last_checkpoint).at("loop").number("best_score", "loop")));
}
