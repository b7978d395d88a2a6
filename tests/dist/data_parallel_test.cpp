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
