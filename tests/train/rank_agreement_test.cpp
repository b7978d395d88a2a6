// Decisions that loops of several ranks make together: two ranks have different data, requests and faults.
#include "testing.hpp"

#include <cmath>
#include <functional>

#include "dist/in_process.hpp"
#include "npu_train/device/random.hpp"
#include "train/rank_generators.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Two loops that are ranks of one training; only the main one has a store.
struct Pair {
  TempDir dir;
  std::shared_ptr<Exchange> exchange = std::make_shared<Exchange>(2);
  CheckpointStore store{(dir / "run/checkpoints").string(), {.save_top_k = -1}};
  std::vector<std::unique_ptr<Toy>> toys;
  std::vector<std::unique_ptr<TrainLoop>> loops;
  std::vector<RunResult> results{2};

  explicit Pair(bool sharded = false) {
    for (int rank = 0; rank < 2; ++rank) {
      toys.push_back(std::make_unique<Toy>());
      auto& toy = *toys.back();
      toy.strategy = make_rank(exchange, rank, sharded);
      toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
      toy.train = toy_data(40, static_cast<uint64_t>(3 + rank));
    }
  }
  void build(const TrainerOptions& options, CheckpointOptions checkpoint = {}) {
    checkpoint.async = false;
    for (int rank = 0; rank < 2; ++rank)
      loops.push_back(toys[static_cast<size_t>(rank)]->loop(options, checkpoint, rank == 0 ? &store : nullptr));
  }
  void fit() {
    on_ranks(*exchange, [&](int rank) { results[static_cast<size_t>(rank)] = loops[static_cast<size_t>(rank)]->fit(); });
  }
  void check_equal() const {
    CHECK(weights(*toys[0]) == weights(*toys[1]));
    CHECK((results[0].reason == results[1].reason));
    CHECK(results[0].global_step == results[1].global_step);
    CHECK(results[0].attempts == results[1].attempts);
    CHECK(loops[0]->epoch() == loops[1]->epoch());
  }
};

std::shared_ptr<TensorDataset> rows_of(const Dataset& data, int64_t begin, int64_t end) {
  std::vector<at::Tensor> inputs, targets;
  for (int64_t i = begin; i < end; ++i) {
    const auto sample = data.get(i);
    inputs.push_back(sample.fields[0].second);
    targets.push_back(sample.fields[1].second);
  }
  return std::make_shared<TensorDataset>(torch::stack(inputs), torch::stack(targets).reshape({-1}), 4);
}

struct Calls final : Callback {
  explicit Calls(bool main_only) : main_only_(main_only) {}
  bool main_rank_only() const override { return main_only_; }
  void on_step_end(TrainLoop&, const StepReport&) override { ++steps; }
  void on_validation_batch(TrainLoop&, int64_t, std::optional<int64_t>) override { ++validation_batches; }
  int steps = 0, validation_batches = 0;

 private:
  bool main_only_;
};

struct At final : Callback {
  explicit At(std::function<void(TrainLoop&, const StepReport&)> f) : fn(std::move(f)) {}
  void on_step_end(TrainLoop& loop, const StepReport& report) override { fn(loop, report); }
  std::function<void(TrainLoop&, const StepReport&)> fn;
};

}  // namespace

TEST_CASE("ranks: a validation averages over the samples of all, however they are shared") {
  const auto all = toy_data(33, 4);
  Toy one;
  one.val = all;
  const auto whole = one.loop({.max_epochs = 1})->validate();
  Pair pair;
  pair.toys[0]->val = rows_of(*all, 0, 20);
  pair.toys[1]->val = rows_of(*all, 20, 33);
  pair.build({.max_epochs = 1});
  std::vector<Scalars> val(2);
  on_ranks(*pair.exchange, [&](int rank) { val[static_cast<size_t>(rank)] = pair.loops[static_cast<size_t>(rank)]->validate(); });
  CHECK((val[0] == val[1]));
  REQUIRE(val[0].size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CAPTURE(whole[i].first);
    CHECK(val[0][i].first == whole[i].first);
    CHECK(val[0][i].second == doctest::Approx(whole[i].second).epsilon(1e-6));
  }
}

TEST_CASE("ranks: a stop that one requests during a validation ends the epoch of neither, and both stop") {
  struct StopInValidation final : Callback {
    void on_validation_batch(TrainLoop& loop, int64_t, std::optional<int64_t>) override {
      if (loop.global_step() > 0) loop.request_stop();
    }
  };
  Pair pair;
  pair.build({.max_epochs = 3});
  pair.loops[1]->add_callback(std::make_shared<StopInValidation>());
  pair.fit();
  pair.check_equal();
  CHECK((pair.results[0].reason == StopReason::Requested));
  CHECK(pair.results[0].global_step == 5);
  CHECK(pair.loops[0]->epoch() == 0);
  CHECK(pair.results[0].history.empty());
}

TEST_CASE("ranks: an epoch ends when the last of them has no more data") {
  Pair pair;
  pair.toys[1]->train = toy_data(24, 9);
  pair.build({.max_epochs = 2});
  pair.fit();
  pair.check_equal();
  CHECK(pair.results[0].global_step == 10);  // five windows per epoch, two of them without a batch of the second rank
  for (const auto& result : pair.results) CHECK(result.batches_seen == 16);  // batches of both ranks
  CHECK(read_checkpoint_meta(pair.results[0].last_checkpoint).global_step == 10);
}

TEST_CASE("ranks: a limit in the middle of an epoch is the middle for both, also where one has no more data") {
  Pair pair;
  pair.toys[1]->train = toy_data(24, 9);
  pair.build({.max_epochs = 2, .max_steps = 3});
  pair.fit();
  pair.check_equal();
  CHECK((pair.results[0].reason == StopReason::MaxSteps));
  CHECK(pair.loops[0]->epoch() == 0);
  for (const auto& loop : pair.loops) loop->set_max_steps(7);
  pair.fit();
  pair.check_equal();
  CHECK(pair.results[0].global_step == 7);
  CHECK(pair.loops[0]->epoch() == 1);
}

TEST_CASE("ranks: a window without a batch on one of them is an update by the others' batches") {
  for (const bool sharded : {false, true}) {
    CAPTURE(sharded);
    Toy one;
    auto alone = one.step();
    Pair pair(sharded);
    const auto first = toy_batch(8, 1), second = toy_batch(5, 2);
    std::vector<StepResult> results;
    results.push_back(alone.run({first}, 8));
    results.push_back(alone.run({second}, 8));
    on_ranks(*pair.exchange, [&](int rank) {
      auto& toy = *pair.toys[static_cast<size_t>(rank)];
      auto step = toy.step();
      for (int k = 0; k < 2; ++k) {
        const auto result = step.run(rank == k ? std::vector<Batch>{k == 0 ? first : second} : std::vector<Batch>{}, 8);
        CHECK(result.weight == results[static_cast<size_t>(k)].weight);
        CHECK(result.samples == results[static_cast<size_t>(k)].samples);
        CHECK(result.packed.equal(results[static_cast<size_t>(k)].packed));
      }
    });
    for (const auto& toy : pair.toys) CHECK(digest(toy->task->parameters()) == digest(one.task->parameters()));
  }
}

TEST_CASE("ranks: no batch on any rank is an error on each") {
  Pair pair;
  const auto errors = errors_of_ranks(*pair.exchange, [&](int rank) { pair.toys[static_cast<size_t>(rank)]->step().run({}, 8); });
  for (const auto& error : errors) {
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::Usage);
    CHECK(has(error->what(), "at least one batch"));
  }
}

TEST_CASE("ranks: a loss that is not finite on one rolls both back to the main rank's checkpoint") {
  Pair pair;
  pair.build({.max_epochs = 3, .on_divergence = "rollback"});
  bool spoiled = false;
  pair.loops[1]->add_callback(std::make_shared<At>([&](TrainLoop& loop, const StepReport& report) {
    if (report.attempt != 6 || spoiled) return;
    spoiled = true;
    const torch::NoGradGuard no_grad;
    for (const auto& p : loop.parts().task->parameters()) p.value.detach().fill_(NAN);
  }));
  pair.fit();
  pair.check_equal();
  CHECK(spoiled);
  CHECK((pair.results[0].reason == StopReason::MaxEpochs));
  CHECK(pair.results[0].global_step == 15);
  for (const auto& loop : pair.loops) CHECK(loop->lr_factor() == doctest::Approx(0.1));
  for (const auto& p : pair.toys[1]->task->parameters()) CHECK(at::isfinite(p.value).all().item<bool>());
}

TEST_CASE("ranks: a parameter that is not finite on one keeps the checkpoint of all from being written, and each names the broken state") {
  Pair pair(/*sharded=*/true);
  pair.build({.max_epochs = 1, .check_val_every_n_epoch = 0});
  pair.loops[1]->add_callback(std::make_shared<At>([&](TrainLoop&, const StepReport& report) {
    if (report.attempt != 4) return;  // the last step, so that no later step reports it
    const torch::NoGradGuard no_grad;
    pair.toys[1]->optimizer->parameters()[0].value.detach().fill_(NAN);
  }));
  const auto errors = errors_of_ranks(*pair.exchange, [&](int rank) { pair.loops[static_cast<size_t>(rank)]->fit(); });
  for (const auto& error : errors) {
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::Diverged);
    CHECK(has(error->what(), "a parameter is not finite"));
    CHECK(has(error->what(), (pair.dir / "run/diverged").string()));
  }
  CHECK(pair.store.last().empty());
}

TEST_CASE("ranks: callbacks that write or print are called by the main rank alone") {
  Pair pair;
  pair.build({.max_epochs = 1});
  std::vector<std::shared_ptr<Calls>> everywhere, main_only;
  for (const auto& loop : pair.loops) {
    loop->add_callback(everywhere.emplace_back(std::make_shared<Calls>(false)));
    loop->add_callback(main_only.emplace_back(std::make_shared<Calls>(true)));
  }
  pair.fit();
  for (const auto& calls : everywhere) CHECK((calls->steps == 5 && calls->validation_batches == 3));
  CHECK((main_only[0]->steps == 5 && main_only[0]->validation_batches == 3));
  CHECK((main_only[1]->steps == 0 && main_only[1]->validation_batches == 0));
}

TEST_CASE("ranks: each takes its own generators from a checkpoint of as many ranks; else rank 0 alone takes the main rank's") {
  Pair pair;
  pair.build({.max_epochs = 1});
  auto saved = snapshot(*pair.loops[0]);
  const auto draws = [] { return torch::rand({4}); };
  const auto draws_after = [&](size_t rank) {
    torch::manual_seed(99);
    pair.loops[rank]->load_state(saved);
    return draws();
  };
  torch::manual_seed(99);
  const auto own = draws();
  CHECK_FALSE(draws_after(0).equal(own));
  CHECK(draws_after(1).equal(own));

  torch::manual_seed(7);
  saved["rng"].tensors["rank1/cpu"] = rng_state().tensors.at("cpu");
  const auto of_rank_1 = draws();
  const auto of_main = draws_after(0);
  CHECK_FALSE(of_main.equal(own));
  CHECK_FALSE(of_main.equal(of_rank_1));
  CHECK(draws_after(1).equal(of_rank_1));
  saved["rng"].tensors["rank2/cpu"] = saved["rng"].tensors["rank1/cpu"];  // now the state is that of three ranks
  CHECK(draws_after(0).equal(of_main));
  CHECK(draws_after(1).equal(own));
}

TEST_CASE("damaged generators of another rank are refused") {
  const std::vector<const char*> damaged = {"cpu",        "cpu 0 x\n",    "cpu 6 1\nfour", "cpu 0 99\nfour",
                                            "cpu 0 -1\n", "cpu 0 4\nfou", "cpu 0 4\nfour!"};
  for (const auto* sent : damaged) {
    CAPTURE(sent);
    const auto exchange = std::make_shared<Exchange>(2);
    std::vector<std::shared_ptr<Strategy>> ranks = {make_rank(exchange, 0, false), make_rank(exchange, 1, false)};
    const auto errors = errors_of_ranks(*exchange, [&](int r) {
      if (r == 1) return void(ranks[1]->ranks().gather(sent));
      npu_train::detail::generators_of_ranks(ranks[0]->ranks());
    });
    REQUIRE(errors[0]);
    CHECK(errors[0]->kind() == ErrorKind::Peer);
    CHECK(has(errors[0]->what(), "of another rank are"));
  }
}

TEST_CASE("ranks: a request that does not reach the other rank ends with the fit") {
  Pair pair;
  pair.build({.max_epochs = 1, .check_val_every_n_epoch = 0});
  pair.loops[1]->add_callback(std::make_shared<At>([](TrainLoop& loop, const StepReport& report) {
    if (report.attempt == 4) loop.request_stop();  // after the last step, so no agreement follows
  }));
  pair.fit();
  CHECK((pair.results[0].reason == StopReason::MaxEpochs));
  for (const auto& loop : pair.loops) CHECK(loop->global_step() == 5);
  on_ranks(*pair.exchange, [&](int rank) {
    auto& loop = *pair.loops[static_cast<size_t>(rank)];
    CHECK(loop.train_epoch().has_value());
  });
}
