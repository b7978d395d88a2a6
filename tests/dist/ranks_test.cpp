#include "npu_train/dist/ranks.hpp"

#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include "dist/in_process_group.hpp"
#include "npu_train/core/error.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("one process: every answer is its own") {
  Ranks ranks;
  CHECK(ranks.rank() == 0);
  CHECK(ranks.size() == 1);
  CHECK(ranks.is_main());
  CHECK(ranks.micro_batch_number(3) == 3);
  CHECK(ranks.sums({2.5, 1}) == std::vector{2.5, 1.0});
  CHECK(ranks.any(true));
  CHECK_FALSE(ranks.of_main(false));
  CHECK(ranks.from_main("a") == "a");
  CHECK((ranks.gather("a") == std::vector<std::string>{"a"}));
  CHECK(at::equal(ranks.gather(at::ones({2})), at::ones({1, 2})));
  int worked = 0;
  ranks.main_first([&] { ++worked; });
  ranks.barrier();
  CHECK(worked == 1);
}

TEST_CASE("several processes: sums in rank order, the main rank's text, and everybody's, in rank order") {
  const auto network = std::make_shared<Network>(3);
  std::vector<double> sums(3);
  std::vector<std::string> of_main(3);
  std::vector<std::vector<std::string>> all(3);
  std::vector<at::Tensor> tensors(3);
  std::vector<char> any(3), main(3);
  on_ranks(network->agreements, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    const auto ranks = make_ranks(std::make_shared<InProcessGroup>(network, rank));
    CHECK(ranks->rank() == rank);
    CHECK(ranks->size() == 3);
    CHECK(ranks->is_main() == (rank == 0));
    CHECK(ranks->micro_batch_number(2) == 6 + rank);
    // In this order, 1e16 + 1 - 1e16 is 0; in another order it is 1.
    sums[i] = ranks->sum(rank == 0 ? 1e16 : rank == 1 ? 1 : -1e16);
    any[i] = static_cast<char>(ranks->any(rank == 2));
    main[i] = static_cast<char>(ranks->of_main(rank == 2));
    of_main[i] = ranks->from_main("rank " + std::to_string(rank));
    all[i] = ranks->gather(std::to_string(rank));
    tensors[i] = ranks->gather(at::full({2}, rank));
    ranks->barrier();
  });
  CHECK(sums == std::vector<double>(3, 0));
  CHECK(any == std::vector<char>(3, 1));
  CHECK(main == std::vector<char>(3, 0));
  CHECK(of_main == std::vector<std::string>(3, "rank 0"));
  for (const auto& texts : all) CHECK((texts == std::vector<std::string>{"0", "1", "2"}));
  for (const auto& t : tensors) CHECK(at::equal(t, at::stack({at::full({2}, 0), at::full({2}, 1), at::full({2}, 2)})));
}
