// The strategy of ranks in processes of their own; its reduction is tested with the reducer, its agreements with the group.
#include "npu_train/dist/data_parallel.hpp"

#include "testing.hpp"

#include "dist/in_process_group.hpp"
#include "dist/ranks.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("before setup() ranks agree and validate, and what needs the parameters is refused by name") {
  for (const auto sharding : {Sharding::None, Sharding::Gradients, Sharding::Parameters}) {
    const auto group = std::make_shared<InProcessGroup>(std::make_shared<Network>(1), 0);
    DataParallelStrategy strategy(group, {}, at::kCPU, sharding);
    StepAgreement step{.found_inf = at::ones({}), .squares = at::full({}, 4.0), .sums = at::full({1}, 2.0)};
    strategy.agree(step);
    CHECK(step.sums.item<double>() == 2);
    CHECK(strategy.writes_slices());
    CHECK(strategy.begin_forward(true));
    CHECK_FALSE(strategy.begin_forward(false));
    auto value = at::ones({2});
    const std::function<void()> calls[] = {
        [&] { strategy.begin_window(1); },       [&] { strategy.backward(value.sum(), true); }, [&] { strategy.finish_gradients({}); },
        [&] { strategy.finish_step(); },         [&] { strategy.add_over_ranks(value); },       [&] { (void)strategy.carried(); },
        [&] { strategy.set_gradient_scale(2); }, [&] { (void)strategy.reduction_times(); },
    };
    for (const auto& call : calls) {
      const auto error = error_of(call);
      CHECK(error.kind() == ErrorKind::Usage);
      CHECK(has(error.what(), "[DataParallelStrategy] has no parameters yet; hint: call setup() first"));
    }
  }
}

TEST_CASE("the times of a step have all bytes that a rank sends, and how long it waited for parameters") {
  constexpr int kRanks = 3;
  for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters}) {
    CAPTURE(static_cast<int>(sharding));
    const auto network = std::make_shared<Network>(kRanks);
    on_ranks(network->agreements, [&](int rank) {
      const auto weight = at::ones({400, 5}).set_requires_grad(true), bias = at::ones({400}).set_requires_grad(true);
      const auto group = std::make_shared<InProcessGroup>(network, rank);
      DataParallelStrategy strategy(group, {.bucket_mib = 0.001}, at::kCPU, sharding);
      strategy.setup(ParameterSet({{.name = "weight", .value = weight}, {.name = "bias", .value = bias}}));
      for (int step = 0; step < 2; ++step) {
        for (const bool has_batch : {true, false}) strategy.begin_forward(has_batch);  // a validation, which is not part of the step
        const auto before = group->counts().bytes;
        strategy.begin_window(1);
        strategy.begin_forward(true);
        strategy.backward((weight.sum() + bias.sum()) * (rank + 1), /*last=*/true);
        strategy.finish_gradients({.loss = 1, .samples = 1, .micro_batches = 1});
        strategy.finish_step();
        const auto times = strategy.reduction_times();
        CHECK(times.bytes() + times.parameter_bytes == group->counts().bytes - before);
        CHECK((times.parameter_bytes > 0) == (sharding != Sharding::None));
        CHECK((times.parameters > 0) == (sharding != Sharding::None));
      }
    });
  }
}

TEST_CASE("a frozen parameter is refused by name") {
  DataParallelStrategy strategy(std::make_shared<InProcessGroup>(std::make_shared<Network>(1), 0), {});
  const auto error = error_of([&] { strategy.setup(ParameterSet({{.name = "head.weight", .value = at::ones({2})}})); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "head.weight requires no gradient; allowed: the parameters that are trained"));
}

TEST_CASE("dist.check_every finds one changed bit, at its next comparison, and names rank and parameter") {
  for (const auto& rank : run_ranks(2, {kRankProgram, "changed_weight"})) {
    CHECK(rank.status == 7);
    CHECK(has(rank.output, "step 3\n"));
    CHECK_FALSE(has(rank.output, "step 4\n"));
    CHECK(has(rank.output, "after 4 steps bias of rank 1 differs from that of rank 0"));
  }
  // With shards before the step that would gather the parameters.
  for (const auto& rank : run_ranks(2, {kRankProgram, "changed_weight", "sharding=optimizer"})) {
    CHECK(rank.status == 7);
    CHECK(has(rank.output, "step 3\n"));
    CHECK(has(rank.output, "after 3 steps bias of rank 1 differs from that of rank 0"));
  }
}

TEST_CASE("without shards one rank alone may fill a model from its averages") {
  for (const auto& rank : run_ranks(2, {kRankProgram, "alone", "timeout=20"})) {
    CHECK_MESSAGE(rank.ok(), rank.output);
    CHECK(has(rank.output, "both are done"));
  }
}

TEST_CASE("shards that one rank alone gathers: both calls are named") {
  for (const auto& rank : run_ranks(2, {kRankProgram, "other_calls", "sharding=gradients", "timeout=20"})) {
    CHECK(rank.status == 9);
    CHECK_MESSAGE(has(rank.output, "gather_slices"), rank.output);
    CHECK_MESSAGE(has(rank.output, "sums"), rank.output);
  }
}

TEST_CASE("dist.check_every names the first operator of a rank that computes differently, and reduction does not count as computing") {
  const auto warnings = [](const std::vector<std::string>& words) {
    std::vector<std::string> command{kRankProgram, "other_operators"};
    command.insert(command.end(), words.begin(), words.end());
    std::string out;
    for (const auto& rank : run_ranks(3, command)) {
      CHECK(rank.status == 0);
      CHECK(has(rank.output, "four steps"));
      out += rank.output;
    }
    return out;
  };
  const auto found = warnings({"rank=2"});
  CHECK(has(found, "dist.check_every: in step 2 operator "));
  CHECK(has(found, " of forward and backward is aten::exp on rank 2 and aten::ones_like on rank 0; the ranks compute differently"));
  CHECK(found.find("dist.check_every", found.find("dist.check_every") + 1) == std::string::npos);  // said once, by one rank
  CHECK_FALSE(has(warnings({}), "dist.check_every"));
  CHECK_FALSE(has(warnings({"late=1"}), "dist.check_every"));
  CHECK_FALSE(has(warnings({"rank=2", "samples=1"}), "dist.check_every"));  // another batch may need other operators
}
