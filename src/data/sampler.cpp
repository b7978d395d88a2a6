#include "npu_train/data/sampler.hpp"

#include <numeric>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {

std::vector<int64_t> permutation(uint64_t seed, int64_t epoch, int64_t n) {
  check(n >= 0 && n <= int64_t{0xffffffff}, ErrorKind::Usage, "sampler", n, " samples cannot be shuffled; at most 4,294,967,295");
  std::vector<int64_t> order = sequence(n);
  Philox rng(derive_seed(seed, "shuffle", static_cast<uint64_t>(epoch)));
  for (int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[rng.below(static_cast<uint32_t>(i + 1))]);
  return order;
}

std::vector<int64_t> sequence(int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> shard(const std::vector<int64_t>& order, int64_t rank, int64_t world_size, ShardMode mode) {
  check(world_size >= 1 && rank >= 0 && rank < world_size, ErrorKind::Usage, "sampler", "rank ", rank, " of ", world_size);
  const auto n = static_cast<int64_t>(order.size());
  check(mode == ShardMode::Uneven || n >= world_size, ErrorKind::Usage, "sampler", n, " samples cannot be shared by ", world_size,
        " ranks");
  const int64_t total =
      mode == ShardMode::Pad ? (n + world_size - 1) / world_size * world_size : (mode == ShardMode::Drop ? n / world_size * world_size : n);
  std::vector<int64_t> mine;
  mine.reserve(total / world_size + 1);
  for (int64_t i = rank; i < total; i += world_size) mine.push_back(order[i % n]);
  return mine;
}

}  // namespace npu_train
