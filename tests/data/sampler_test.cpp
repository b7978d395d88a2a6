#include "testing.hpp"

#include "npu_train/data/sampler.hpp"

#include <algorithm>
#include <cmath>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a permutation holds every number once and follows seed and epoch") {
  auto order = permutation(7, 3, 1000);
  CHECK(order == permutation(7, 3, 1000));
  CHECK(order != permutation(7, 4, 1000));
  CHECK(order != permutation(8, 3, 1000));
  CHECK(order != sequence(1000));
  std::sort(order.begin(), order.end());
  CHECK(order == sequence(1000));
  CHECK(permutation(1, 0, 0).empty());
  CHECK(permutation(1, 0, 1) == sequence(1));
}

TEST_CASE("every order of three is as likely") {
  int counts[6] = {};
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto order = permutation(5, epoch, 3);
    ++counts[order[0] * 2 + (order[1] > order[2] ? 1 : 0)];
  }
  for (const int count : counts) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("ranks share an order") {
  const auto order = sequence(10);
  CHECK(shard(order, 1, 4, ShardMode::Uneven) == std::vector<int64_t>{1, 5, 9});
  CHECK(shard(order, 3, 4, ShardMode::Uneven) == std::vector<int64_t>{3, 7});
  CHECK(shard(order, 3, 4, ShardMode::Drop) == std::vector<int64_t>{3, 7});
  CHECK(shard(order, 1, 4, ShardMode::Drop) == std::vector<int64_t>{1, 5});
  CHECK(shard(order, 2, 4, ShardMode::Pad) == std::vector<int64_t>{2, 6, 0});
  CHECK(shard(order, 0, 1, ShardMode::Pad) == order);
  CHECK(error_of([&] { shard(order, 4, 4, ShardMode::Pad); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { shard(order, 0, 11, ShardMode::Drop); }).kind() == ErrorKind::Usage);
}
