// Groups of ranks: those that divide the shards, and those that have the same shard.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// Each of `size` neighbouring ranks has its own shard; ranks that are `size` apart have the same one.
struct ShardGroups {
  std::shared_ptr<ProcessGroup> all;
  std::shared_ptr<ProcessGroup> shards;    // neighbouring ranks, which divide the shards
  std::shared_ptr<ProcessGroup> replicas;  // ranks with the same shard; nullptr if there are no others

  ShardGroups(std::shared_ptr<ProcessGroup> group, int size) : all(std::move(group)), shards(all) {
    if (size == all->size()) return;
    const int shard = all->rank() % size, first = all->rank() - shard;
    std::vector<int> neighbours, same;
    for (int r = 0; r < size; ++r) neighbours.push_back(first + r);
    for (int r = shard; r < all->size(); r += size) same.push_back(r);
    shards = all->subgroup(neighbours);
    replicas = all->subgroup(same);
  }
};

}  // namespace npu_train::detail
