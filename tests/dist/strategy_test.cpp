#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include "dist/in_process.hpp"
#include "npu_train/dist/strategy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("one process is all ranks: it receives its own values") {
  SingleDeviceStrategy strategy;
  CHECK(strategy.ranks().rank() == 0);
  CHECK(strategy.ranks().size() == 1);
  CHECK(strategy.ranks().is_main());
  CHECK(strategy.capturable());
  const auto w = at::ones({3}).set_requires_grad(true);
  ParameterSet parameters;
  parameters.add({.name = "w", .value = w});
  const auto updated = strategy.setup(parameters);
  REQUIRE(updated.size() == 1);
  CHECK(updated[0].value.is_same(w));
  CHECK(strategy.ranks().sum(2.5) == 2.5);

  strategy.backward((w * 2).sum(), /*last=*/false);
  strategy.backward((w * 3).sum(), /*last=*/true);
  const auto gradient = w.grad();
  const auto weight = strategy.finish_gradients({.loss = 7, .samples = 5, .micro_batches = 2});
  CHECK(weight.loss == 7);
  CHECK(weight.samples == 5);
  CHECK(weight.micro_batches == 2);
  CHECK(w.grad().is_same(gradient));
  CHECK(at::equal(gradient, at::full({3}, 5.0)));

  const StepAgreement own{.found_inf = at::ones({}), .squares = at::rand({}), .sums = at::rand({3})};
  auto all = own;
  const auto versions = [](const StepAgreement& a) {
    return std::vector<int64_t>{a.found_inf._version(), a.squares._version(), a.sums._version()};
  };
  const auto before = versions(own);
  strategy.agree(all);
  strategy.finish_step();
  strategy.ranks().barrier();
  CHECK((all.found_inf.is_same(own.found_inf) && all.squares.is_same(own.squares) && all.sums.is_same(own.sums)));
  CHECK(versions(all) == before);
  CHECK(strategy.decide(0) == 0);
  CHECK(strategy.decide(3) == 3);
}

TEST_CASE("ranks in threads: each gets what all gave, and a decision of one is that of all") {
  const auto exchange = std::make_shared<Exchange>(3);
  std::vector<double> sums(3);
  std::vector<unsigned> decided(3), again(3);
  on_ranks(*exchange, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    ReplicatedRank strategy(exchange, rank);
    sums[i] = strategy.ranks().sum(rank + 1);
    strategy.decide(rank == 1 ? 2 : 0);
    StepAgreement step{.found_inf = {}, .squares = {}, .sums = at::ones({1})};
    strategy.agree(step);
    decided[i] = strategy.decide(0);
    again[i] = strategy.decide(0);
    strategy.ranks().barrier();
  });
  CHECK(sums == std::vector<double>(3, 6));
  CHECK(decided == std::vector<unsigned>(3, 2));
  CHECK(again == std::vector<unsigned>(3, 0));
}

TEST_CASE("ranks in threads: a rank that waits for one that failed gets an error") {
  const auto exchange = std::make_shared<Exchange>(2);
  const auto errors = errors_of_ranks(*exchange, [&](int rank) {
    ReplicatedRank strategy(exchange, rank);
    check(rank == 0, ErrorKind::Data, "test", "rank 1 has no data");
    strategy.ranks().barrier();
  });
  REQUIRE((errors[0] && errors[1]));
  CHECK(errors[0]->kind() == ErrorKind::Peer);
  CHECK(errors[1]->kind() == ErrorKind::Data);
}
