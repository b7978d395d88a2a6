// The strategy of ranks in processes of their own; its reduction is tested with the reducer, its agreements with the group.
#include "npu_train/dist/data_parallel.hpp"

#include "testing.hpp"

#include "dist/ranks.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("dist.check_every finds one changed bit, at its next comparison, and names rank and parameter") {
  for (const auto& rank : run_ranks(2, {kRankProgram, "changed_weight"})) {
    CHECK(rank.status == 7);
    CHECK(has(rank.output, "step 3\n"));
    CHECK_FALSE(has(rank.output, "step 4\n"));
    CHECK(has(rank.output, "after 4 steps bias of rank 1 differs from that of rank 0"));
  }
}
