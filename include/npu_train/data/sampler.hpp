/// The order of samples: pure functions of (seed, epoch), so that a position is two numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace npu_train {

/// Handling of samples that cannot be divided evenly among the ranks.
enum class ShardMode {
  Pad,     ///< the first samples are used twice, so that every rank has equally many (training)
  Drop,    ///< the last samples are omitted (training)
  Uneven,  ///< the first ranks have one more (evaluation: each sample is counted once)
};

/// 0, 1, ..., n - 1 in an order drawn from (seed, epoch): Fisher-Yates over Philox.
std::vector<int64_t> permutation(uint64_t seed, int64_t epoch, int64_t n);

/// 0, 1, ..., n - 1.
std::vector<int64_t> sequence(int64_t n);

/// The part of `order` for `rank` of `world_size`: every world_size-th from the rank-th.
/// Error(Usage) unless 0 <= rank < world_size, or if Pad or Drop has fewer samples than ranks.
std::vector<int64_t> shard(const std::vector<int64_t>& order, int64_t rank, int64_t world_size, ShardMode mode);

}  // namespace npu_train
