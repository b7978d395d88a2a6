#include "testing.hpp"

#include "npu_train/dist/rings.hpp"

#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a server of two rings connects 1, 2, 4 or 8 NPUs, 2 and 4 in one ring") {
  using npu_train::detail::rings_connect;
  for (const auto& [ranks, connected] : std::vector<std::pair<std::vector<int>, bool>>{{{0}, true},
                                                                                       {{0, 1}, true},
                                                                                       {{0, 3}, true},
                                                                                       {{3, 4}, false},  // they are in two rings
                                                                                       {{0, 1, 2}, false},
                                                                                       {{4, 5, 6, 7}, true},
                                                                                       {{0, 2, 4, 6}, false},
                                                                                       {{0, 1, 2, 3, 4, 5}, false},
                                                                                       {{0, 1, 2, 3, 4, 5, 6, 7}, true},
                                                                                       {{1, 9, 17}, true},  // one rank on each machine
                                                                                       {{1, 2, 9, 10, 17, 18}, true},
                                                                                       {{4, 5, 6, 7, 12, 13, 14, 15}, true},
                                                                                       {{0, 1, 8}, false},  // machines have unequal numbers
                                                                                       {{3, 4, 11, 12}, false}}) {
    CAPTURE(ranks.size());
    CAPTURE(ranks.back());
    CHECK(rings_connect(ranks, 8) == connected);
  }
  CHECK(rings_connect({0, 4}, 4));  // they are on two machines
  using npu_train::detail::not_in_rings;
  CHECK(not_in_rings(8, 8, 8, 8).empty());
  CHECK(not_in_rings(16, 8, 8, 8).empty());  // shards inside each machine, replicas between machines
  CHECK(not_in_rings(4, 4, 2, 0).empty());
  CHECK(not_in_rings(6, 6, 0, 0).size() == 6);
  CHECK(not_in_rings(12, 8, 0, 0).size() == 12);  // 8 ranks on one machine and 4 on the other
  CHECK(not_in_rings(8, 8, 4, 0) == std::vector<int>{0, 4});
  CHECK(not_in_rings(8, 8, 2, 0) == std::vector<int>{0, 2, 4, 6});
  CHECK(not_in_rings(8, 8, 0, 4) == std::vector<int>{0, 4});
  CHECK(not_in_rings(24, 8, 3, 0) == std::vector<int>{0, 1, 2});
  const auto refused = [](int shards, int groups) {
    return error_of([&] { npu_train::detail::check_rings(8, 8, shards, groups, "npu:0"); });
  };
  CHECK_NOTHROW(npu_train::detail::check_rings(8, 8, 8, 8, "npu:0"));
  CHECK((refused(4, 0).kind() == ErrorKind::Usage));
  CHECK(has(refused(4, 0).what(), "[dist.shard_size] npu:0 connects 1, 2, 4 or 8 NPUs of a machine"));
  CHECK(has(refused(4, 0).what(), "the ranks 0, 4, 8 on a machine, are not connected"));
  CHECK(has(refused(0, 2).what(), "[dist.group_size]"));
  CHECK(has(error_of([] { npu_train::detail::check_rings(3, 3, 3, 3, "npu:0"); }).what(), "[trainer.devices]"));
}
