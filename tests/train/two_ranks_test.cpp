// Two ranks, each with its own model, optimizer and loss scale, compared with one process that accumulates the micro-batches of both.
#include "testing.hpp"

#include <filesystem>
#include <functional>

#include "dist/in_process.hpp"
#include "dist/in_process_group.hpp"
#include "npu_train/dist/data_parallel.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr size_t kRanks = 2;

struct Setting {
  std::string mode = "32-true";
  std::string optimizer = "sgd";
  bool sharded = false;
  double clip = 0;
};

// The rows of each rank's micro-batches in a window, and R, the weight of a full window.
struct Share {
  std::vector<int64_t> rows[kRanks];
  double full_weight;
  bool overflows = false;  // in the forward of the last rank
};

// Returns uneven windows, all but one of which weigh less than a full one.
const std::vector<Share>& windows() {
  static const std::vector<Share> all = {{{{5}, {3}}, 16}, {{{8}, {8}}, 16}, {{{2}, {7}}, 16}, {{{8, 4}, {3}}, 32}, {{{6}, {5}}, 16}};
  return all;
}

// The reports of a step, and the state after it.
struct RanksSeen {
  std::vector<float> packed;
  double loss_weight = 0, weight = 0, samples = 0, scale = 0;
  bool taken = false;
  uint64_t parameters = 0, buffers = 0;
  friend bool operator==(const RanksSeen&, const RanksSeen&) = default;
};

Batch micro_batch(size_t window, size_t rank, size_t k, int64_t rows, bool overflows) {
  auto batch = toy_batch(rows, 100 * window + 10 * rank + k);
  if (overflows) batch.set("input", batch.input() * 1e6);
  return batch;
}

std::vector<Batch> of_rank(const std::vector<Share>& shares, size_t window, size_t rank) {
  std::vector<Batch> out;
  const auto& share = shares[window];
  for (size_t k = 0; k < share.rows[rank].size(); ++k)
    out.push_back(micro_batch(window, rank, k, share.rows[rank][k], share.overflows && rank == kRanks - 1));
  return out;
}

RanksSeen seen(Toy& toy, const StepResult& r) {
  RanksSeen out{.packed = {},
                .loss_weight = r.loss_weight,
                .weight = r.weight,
                .samples = r.samples,
                .scale = toy.precision->scale(),
                .taken = r.taken,
                .parameters = digest(toy.task->parameters())};
  for (int64_t i = 0; i < r.packed.numel(); ++i) out.packed.push_back(r.packed[i].item<float>());
  for (const auto& [name, buffer] : toy.task->buffers()) out.buffers = out.buffers * 31 + digest(buffer);
  return out;
}

std::unique_ptr<Toy> toy_of(const Setting& setting, std::shared_ptr<Strategy> strategy) {
  auto toy = std::make_unique<Toy>(setting.mode, setting.optimizer, 0, GradScalerOptions{.growth_interval = 2});
  if (strategy) {
    toy->optimizer->set_parameters(strategy->setup(toy->optimizer->parameters()));
    toy->strategy = std::move(strategy);
  }
  return toy;
}

struct RankRun {
  std::vector<RanksSeen> steps;
  std::unique_ptr<Toy> toy;
};

RankRun one_process(const Setting& setting, const std::vector<Share>& shares) {
  RankRun out{{}, toy_of(setting, nullptr)};
  auto step = out.toy->step({.clip_value = setting.clip});
  for (size_t w = 0; w < shares.size(); ++w) {
    auto window = of_rank(shares, w, 0);
    for (auto& batch : of_rank(shares, w, 1)) window.push_back(batch);
    out.steps.push_back(seen(*out.toy, step.run(window, shares[w].full_weight)));
  }
  return out;
}

// Runs the steps of two ranks. Calls `before(toy, window, rank)` in the rank's thread before each step.
std::vector<RankRun> two_ranks(const Setting& setting, const std::vector<Share>& shares,
                               const std::function<void(Toy&, size_t window, size_t rank)>& before = {}) {
  const auto exchange = std::make_shared<Exchange>(static_cast<int>(kRanks));
  std::vector<RankRun> out(kRanks);
  std::vector<std::vector<std::vector<Batch>>> batches(kRanks);  // made in advance, because both ranks would draw from one generator
  for (size_t rank = 0; rank < kRanks; ++rank) {
    out[rank].toy = toy_of(setting, make_rank(exchange, static_cast<int>(rank), setting.sharded));
    for (size_t w = 0; w < shares.size(); ++w) batches[rank].push_back(of_rank(shares, w, rank));
  }
  on_ranks(*exchange, [&](int r) {
    const auto rank = static_cast<size_t>(r);
    auto& toy = *out[rank].toy;
    auto step = toy.step({.clip_value = setting.clip});
    for (size_t w = 0; w < shares.size(); ++w) {
      if (before) before(toy, w, rank);
      out[rank].steps.push_back(seen(toy, step.run(batches[rank][w], shares[w].full_weight)));
    }
  });
  return out;
}

// Removes the running statistics. With libtorch's kernels, they differ from those of one process by rounding errors
// (running_statistics_test.cpp).
RanksSeen without_buffers(RanksSeen s) {
  s.buffers = 0;
  return s;
}

void check_bits(const Setting& setting, const std::vector<Share>& shares) {
  CAPTURE(setting.mode);
  CAPTURE(setting.optimizer);
  CAPTURE(setting.sharded);
  CAPTURE(setting.clip);
  const auto one = one_process(setting, shares);
  const auto ranks = two_ranks(setting, shares);
  for (size_t w = 0; w < shares.size(); ++w) CHECK(ranks[0].steps[w].buffers == ranks[1].steps[w].buffers);
  for (const auto& rank : ranks) {
    REQUIRE(rank.steps.size() == one.steps.size());
    for (size_t w = 0; w < shares.size(); ++w) {
      CAPTURE(w);
      CHECK(rank.steps[w].packed == one.steps[w].packed);
      CHECK((without_buffers(rank.steps[w]) == without_buffers(one.steps[w])));
    }
  }
}

void check_close(const RankRun& rank, const RankRun& one, double relative) {
  for (const auto& p : one.toy->task->parameters()) {
    CAPTURE(p.name);
    CHECK(at::allclose(rank.toy->task->parameters().find(p.name)->value, p.value, relative, 1e-7));
  }
  CHECK(rank.steps.back().packed.back() == doctest::Approx(one.steps.back().packed.back()).epsilon(1e-6));
}

}  // namespace

TEST_CASE("two ranks: uneven windows give the bits of one process that accumulates them") {
  // The bits are equal: the second rank has one micro-batch in each window, so both sides add the same numbers in the same order.
  for (const char* mode : {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"})
    for (const bool sharded : {false, true}) check_bits({.mode = mode, .sharded = sharded}, windows());
  for (const bool sharded : {false, true}) check_bits({.optimizer = "adamw", .sharded = sharded}, windows());
  for (const bool sharded : {false, true})
    for (const char* mode : {"32-true", "16-mixed"}) check_bits({.mode = mode, .sharded = sharded, .clip = 0.05}, windows());
}

TEST_CASE("two ranks: several micro-batches on each") {
  // (a + b) + (c + d) differs from ((a + b) + c) + d by a few rounding errors of fp32; a wrong weight would differ by 1e-2.
  for (const bool sharded : {false, true}) {
    const Setting setting{.sharded = sharded};
    const std::vector<Share> shares = {{{{8, 5}, {8, 3}}, 32}, {{{8, 8}, {8, 8}}, 32}};
    const auto one = one_process(setting, shares);
    for (const auto& rank : two_ranks(setting, shares)) check_close(rank, one, 1e-5);
  }
}

TEST_CASE("two ranks: the weight of a full window is the same for both if none is given") {
  auto given = windows(), open = windows();
  given.resize(3);
  open.resize(3);
  for (size_t w = 0; w < open.size(); ++w) {
    given[w].full_weight = static_cast<double>(given[w].rows[0][0] + given[w].rows[1][0]);
    open[w].full_weight = 0;
  }
  const auto one = one_process({}, given);
  for (const auto& rank : two_ranks({}, open))
    for (size_t w = 0; w < open.size(); ++w) CHECK((without_buffers(rank.steps[w]) == without_buffers(one.steps[w])));
}

TEST_CASE("two ranks: clipping takes the norm of all gradients, also where each rank has some of them") {
  const Setting setting{.optimizer = "sgd", .sharded = true, .clip = 0.05};
  const auto one = one_process(setting, windows());
  for (const auto& step : one.steps) CHECK(step.packed.back() > 0.05);
  for (const auto& rank : two_ranks(setting, windows()))
    for (size_t w = 0; w < windows().size(); ++w) CHECK(rank.steps[w].packed.back() == one.steps[w].packed.back());
}

TEST_CASE("two ranks: an overflow on one skips the step on both, and both scales stay equal") {
  auto shares = windows();
  shares[1].overflows = true;
  for (const char* mode : {"16-mixed", "16-true"})
    for (const bool sharded : {false, true}) {
      const Setting setting{.mode = mode, .sharded = sharded};
      CAPTURE(mode);
      CAPTURE(sharded);
      const auto one = one_process(setting, shares);
      REQUIRE_FALSE(one.steps[1].taken);
      for (const auto& rank : two_ranks(setting, shares)) {
        CHECK(rank.steps[1].parameters == rank.steps[0].parameters);
        CHECK(rank.steps[1].buffers == rank.steps[0].buffers);
        CHECK(rank.steps[1].scale == rank.steps[0].scale / 2);
        for (size_t w = 0; w < shares.size(); ++w) {
          CAPTURE(w);
          CHECK(rank.steps[w].taken == one.steps[w].taken);
          CHECK(rank.steps[w].scale == one.steps[w].scale);
          CHECK(rank.steps[w].parameters == one.steps[w].parameters);
        }
      }
    }
}

TEST_CASE("two ranks: an overflow in the gradients that one rank has skips the step on both") {
  for (const char* name : {"head.weight", "head.bias"}) {  // one parameter of each rank
    CAPTURE(name);
    const auto& shares = windows();
    unsigned hook = 0;
    const auto ranks = two_ranks({.mode = "16-mixed", .sharded = true}, shares, [&](Toy& toy, size_t window, size_t rank) {
      if (rank != 1 || window > 2) return;
      const at::Tensor weight = toy.task->parameters().find(name)->value;
      if (window == 1) hook = weight.register_hook([](const at::Tensor& gradient) { return gradient * kInf; });
      if (window == 2) weight.remove_hook(hook);
    });
    for (const auto& rank : ranks) {
      CHECK(rank.steps[0].taken);
      CHECK_FALSE(rank.steps[1].taken);
      CHECK(rank.steps[1].parameters == rank.steps[0].parameters);
      CHECK(rank.steps[1].scale == rank.steps[0].scale / 2);
      CHECK(rank.steps[2].taken);
    }
    for (size_t w = 0; w < shares.size(); ++w) CHECK((without_buffers(ranks[0].steps[w]) == without_buffers(ranks[1].steps[w])));
  }
}

TEST_CASE("two ranks: a rank that fails ends the step of the other") {
  const auto exchange = std::make_shared<Exchange>(2);
  std::vector<std::unique_ptr<Toy>> toys;
  for (int rank = 0; rank < 2; ++rank) toys.push_back(toy_of({}, make_rank(exchange, rank, /*sharded=*/false)));
  const auto batch = toy_batch();
  auto wrong = batch;
  wrong.weight = -1;
  const auto errors =
      errors_of_ranks(*exchange, [&](int rank) { toys[static_cast<size_t>(rank)]->step().run({rank == 0 ? batch : wrong}, 16); });
  REQUIRE((errors[0] && errors[1]));
  CHECK(errors[0]->kind() == ErrorKind::Peer);
  CHECK(errors[1]->kind() == ErrorKind::Usage);
}

TEST_CASE("two ranks: the state that a program reads has complete masters on each, where they are divided, and any precision loads it") {
  const auto one = one_process({.mode = "bf16-true"}, windows());
  const auto network = std::make_shared<Network>(static_cast<int>(kRanks));
  std::vector<std::unique_ptr<Toy>> toys, others;
  std::vector<std::vector<std::vector<Batch>>> batches(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (auto* list : {&toys, &others}) list->push_back(std::make_unique<Toy>("bf16-true"));
    for (size_t w = 0; w < windows().size(); ++w) batches[rank].push_back(of_rank(windows(), w, rank));
  }
  on_ranks(network->agreements, [&](int r) {
    const auto rank = static_cast<size_t>(r);
    const auto group = std::make_shared<InProcessGroup>(network, r);
    const auto divide = [&](Toy& toy) {
      toy.strategy = std::make_shared<DataParallelStrategy>(group, DistOptions(), at::kCPU, Sharding::Optimizer);
      toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
      toy.precision->set_updated(toy.optimizer->parameters());
    };
    auto& toy = *toys[rank];
    divide(toy);
    auto step = toy.step();
    for (size_t w = 0; w < windows().size(); ++w) step.run(batches[rank][w], windows()[w].full_weight);
    const auto state = toy.loop({})->state();
    for (const auto& p : one.toy->optimizer->parameters()) {
      CAPTURE(p.name);
      CHECK(torch::equal(state.at("model").tensors.at(p.name), p.value));
    }
    auto& other = *others[rank];
    divide(other);
    other.loop({})->load_state(state);
    for (size_t i = 0; i < other.optimizer->parameters().size(); ++i) {
      const auto& p = other.optimizer->parameters()[i];
      CAPTURE(p.name);
      CHECK(torch::equal(p.value, p.part_of(one.toy->optimizer->parameters()[i].value.detach())));
      CHECK(torch::equal(other.task->parameters().find(p.name)->value, one.toy->task->parameters().find(p.name)->value));
    }
  });
}

TEST_CASE("two ranks: a stop that one of them requests ends both loops after the same step, and one writes") {
  struct StopAt final : Callback {
    void on_step_end(TrainLoop& loop, const StepReport& report) override {
      if (report.attempt == 2) loop.request_stop();
    }
    void on_checkpoint(TrainLoop&, const std::string&) override { ++checkpoints; }
    int checkpoints = 0;
  };
  struct Count final : Callback {
    void on_checkpoint(TrainLoop&, const std::string&) override { ++checkpoints; }
    int checkpoints = 0;
  };
  const TempDir dir;
  const auto exchange = std::make_shared<Exchange>(2);
  std::vector<std::unique_ptr<Toy>> toys;
  std::vector<std::unique_ptr<CheckpointStore>> stores;
  std::vector<std::unique_ptr<TrainLoop>> loops;
  const auto stopper = std::make_shared<StopAt>();
  const auto counter = std::make_shared<Count>();
  for (int rank = 0; rank < 2; ++rank) {
    toys.push_back(toy_of({}, make_rank(exchange, rank, /*sharded=*/false)));
    toys.back()->train = toy_data(40, static_cast<uint64_t>(3 + rank));
    stores.push_back(std::make_unique<CheckpointStore>((dir / std::to_string(rank)).string(), CheckpointOptions{}));
    loops.push_back(toys.back()->loop({.max_epochs = 50, .check_val_every_n_epoch = 0}, {}, stores.back().get()));
  }
  loops[0]->add_callback(counter);
  loops[1]->add_callback(stopper);
  std::vector<RunResult> results(2);
  on_ranks(*exchange, [&](int rank) { results[static_cast<size_t>(rank)] = loops[static_cast<size_t>(rank)]->fit(); });
  for (const auto& result : results) CHECK((result.reason == StopReason::Requested));
  CHECK(results[0].global_step == results[1].global_step);
  CHECK(results[0].global_step < 10);
  CHECK(weights(*toys[0]) == weights(*toys[1]));
  CHECK_FALSE(results[0].last_checkpoint.empty());
  CHECK(counter->checkpoints == 1);
  CHECK(results[1].last_checkpoint.empty());
  CHECK(stopper->checkpoints == 0);
  CHECK_FALSE(std::filesystem::exists(dir / "1"));
}
