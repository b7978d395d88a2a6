// DataParallelStrategy on ranks in processes of their own. Its reduction is tested with the reducer, and its agreements with the group.
#include "npu_train/dist/data_parallel.hpp"

#include "testing.hpp"

#include <ATen/ops/arange.h>
#include <c10/util/accumulate.h>

#include "dist/in_process_group.hpp"
#include "dist/rank_processes.hpp"
#include "npu_train/device/live_bytes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Two parameters in bf16 with fp32 masters, and between them a norm in fp32.
struct WithMasters {
  ParameterSet trained;

  WithMasters() {
    add("weight", {90, 101}, at::kBFloat16);
    add("norm", {777}, at::kFloat);
    add("head", {5, 40, 3}, at::kBFloat16);
  }
  void add(const char* name, const std::vector<int64_t>& sizes, at::ScalarType dtype) {
    const auto value =
        (at::arange(c10::multiply_integers(sizes), at::kFloat) * 0.37).sin().view(sizes).clone();  // views keep the memory of their base
    Parameter p{.name = name, .value = value.set_requires_grad(true)};
    if (dtype != at::kFloat) p.computed = value.detach().to(dtype).set_requires_grad(true);
    trained.add(std::move(p));
  }
  static at::Tensor in_model(const Parameter& p) { return p.computed.defined() ? p.computed : p.value; }
  static at::Tensor gradient(const Parameter& p, int rank, int step) {
    const auto like = in_model(p);
    return (at::arange(like.numel(), at::kFloat) * (0.11 + 0.07 * rank) + step).cos().view(like.sizes()).to(like.scalar_type());
  }
  at::Tensor loss(int rank, int step) const {
    at::Tensor out;
    for (const auto& p : trained) {
      const auto term = (in_model(p) * gradient(p, rank, step)).sum().to(at::kFloat);
      out = out.defined() ? out + term : term;
    }
    return out;
  }
};

void descend_by(const at::Tensor& value, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  value.sub_(gradient, 0.05);
}

// Trains in one process with the gradients of all ranks, added in fp32 in rank order. The tensors of the model are rounded after each step.
WithMasters in_one_process(int ranks, int steps) {
  const at::NoGradGuard no_grad;
  WithMasters out;
  for (int step = 0; step < steps; ++step)
    for (const auto& p : out.trained) {
      auto sum = WithMasters::gradient(p, 0, step).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
      for (int r = 1; r < ranks; ++r) sum.add_(WithMasters::gradient(p, r, step));
      descend_by(p.value, sum);
      if (p.computed.defined()) p.computed.copy_(p.value);
    }
  return out;
}

void step_of_rank(DataParallelStrategy& strategy, const WithMasters& net, const ParameterSet& own, int step) {
  own.zero_grad();
  strategy.begin_window(1);
  strategy.backward(net.loss(strategy.ranks().rank(), step), /*last=*/true);
  strategy.finish_gradients({.loss = 1, .samples = 1, .micro_batches = 1});
  for (const auto& p : own)
    if (p.value.grad().defined()) descend_by(p.value, p.value.grad());
  strategy.finish_step();
}

}  // namespace

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
        [&] { strategy.begin_window(1); }, [&] { strategy.backward(value.sum(), true); }, [&] { strategy.finish_gradients({}); },
        [&] { strategy.finish_step(); },   [&] { strategy.add_over_ranks(value); },       [&] { (void)strategy.reduction_times(); },
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

TEST_CASE("masters are divided as the optimizer's state is, and the tensors of the model are gathered in low precision") {
  constexpr int kRanks = 4, kSteps = 3;
  const auto expected = in_one_process(kRanks, kSteps);
  struct Division {
    Sharding sharding;
    const char* shard_size;
    const char* shard_by;
    int shards;
  };
  for (const auto& division : {Division{Sharding::Optimizer, "none", "elements", 4}, Division{Sharding::Gradients, "none", "elements", 4},
                               Division{Sharding::Gradients, "2", "elements", 2}, Division{Sharding::Optimizer, "none", "layer", 1}}) {
    CAPTURE(static_cast<int>(division.sharding));
    CAPTURE(division.shard_size);
    CAPTURE(division.shard_by);
    const auto network = std::make_shared<Network>(kRanks);
    on_ranks(network->agreements, [&](int rank) {
      const auto group = std::make_shared<InProcessGroup>(network, rank);
      DistOptions options{.shard_by = division.shard_by, .bucket_mib = 0.01};
      if (division.shard_size != std::string("none")) options.shard_size = division.shard_size;
      DataParallelStrategy strategy(group, options, at::kCPU, division.sharding);
      const LiveBytes live;
      const WithMasters net;
      auto own = strategy.setup(net.trained);
      int64_t in_model = 0, masters = 0, slices = 0;
      for (size_t i = 0; i < own.size(); ++i) {
        const auto& p = net.trained[i];
        in_model += static_cast<int64_t>(WithMasters::in_model(p).nbytes());
        CHECK(own[i].is_slice());
        CHECK((p.computed.defined() || own[i].value.is_alias_of(p.value)));
        CHECK((p.value.storage().nbytes() == 0) == p.computed.defined());
        if (!p.computed.defined()) continue;
        masters += p.value.numel() * 4;
        slices += static_cast<int64_t>(own[i].value.storage().nbytes());
      }
      CHECK(slices <= masters / division.shards + 2 * 64 * kRanks * 4);  // two buckets, whose parts are padded to blocks of 64
      if (division.sharding == Sharding::Gradients) CHECK(live.now() < in_model + masters / division.shards + 4096);
      for (int step = 0; step < kSteps; ++step) {
        const auto before = group->counts().bytes;
        step_of_rank(strategy, net, own, step);
        const auto times = strategy.reduction_times();
        if (division.shards == 4) CHECK(times.bytes() + times.parameter_bytes == group->counts().bytes - before);
        if (division.shards == 4) CHECK(times.parameter_bytes * 4 / 3 < in_model + 3 * 4 * 64 * 4);
      }
      std::vector<at::Tensor> whole;
      for (const auto& p : net.trained) whole.push_back(at::empty(p.value.sizes()));
      strategy.gather_slices(own.values(), whole);
      own = strategy.setup(net.trained);  // as if other parameters were trained from now on
      for (size_t i = 0; i < own.size(); ++i) {
        CAPTURE(net.trained[i].name);
        const auto& of_one = expected.trained[i];
        CHECK(at::equal(WithMasters::in_model(net.trained[i]), WithMasters::in_model(of_one)));
        CHECK(at::equal(whole[i], of_one.value));
        CHECK(at::equal(own[i].value, own[i].part_of(of_one.value.detach())));
      }
    });
  }
}

TEST_CASE("dist.check_every compares the tensors of the model where masters are divided") {
  const auto network = std::make_shared<Network>(2);
  const auto on_rank = [&](int rank) {
    DataParallelStrategy strategy(std::make_shared<InProcessGroup>(network, rank), {.check_every = 1}, at::kCPU, Sharding::Gradients);
    const WithMasters net;
    const auto own = strategy.setup(net.trained);
    for (int step = 0; step < 3; ++step) {
      step_of_rank(strategy, net, own, step);
      if (step == 1 && rank == 1) net.trained[2].computed.detach().view({-1}).narrow(0, 7, 1).view(at::kShort).bitwise_xor_(1);
    }
  };
  const auto error = error_of([&] { on_ranks(network->agreements, on_rank); });
  CHECK(error.kind() == ErrorKind::CheckFailed);
  CHECK(has(error.what(), "after 2 steps head of rank 1 differs from that of rank 0"));
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
  // With shards, the error comes before the step that would gather the parameters.
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
  CHECK(found.find("dist.check_every", found.find("dist.check_every") + 1) == std::string::npos);  // reported once, by one rank
  CHECK_FALSE(has(warnings({}), "dist.check_every"));
  CHECK_FALSE(has(warnings({"late=1"}), "dist.check_every"));
  CHECK_FALSE(has(warnings({"rank=2", "samples=1"}), "dist.check_every"));  // another batch may need other operators
}
