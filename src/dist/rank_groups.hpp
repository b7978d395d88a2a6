// Groups of ranks: neighbours, led by their first rank; ranks that divide the shards; and ranks that have the same shard.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// Groups of neighbouring ranks, each led by its first rank.

struct RankGroups {
  int count = 1;                          // number of groups; the last one may be smaller
  std::shared_ptr<ProcessGroup> members;  // this rank's group; nullptr if there is only one group
  std::shared_ptr<ProcessGroup> leaders;  // the first rank of each group; nullptr on other ranks

  // Every rank creates two groups, in the same order: a rank that does not lead creates a second one with itself alone.
  RankGroups(ProcessGroup& all, int size) : count((all.size() + size - 1) / size) {
    if (count == 1) return;
    const int first = all.rank() / size * size;
    std::vector<int> own, firsts;
    for (int r = first; r < std::min(first + size, all.size()); ++r) own.push_back(r);
    for (int r = 0; r < all.size(); r += size) firsts.push_back(r);
    members = all.subgroup(own);
    const auto led = all.subgroup(all.rank() == first ? firsts : std::vector<int>{all.rank()});
    if (all.rank() == first) leaders = led;
  }
};

// Each of `size` neighbouring ranks has its own shard; ranks that are `size` apart have the same one.
struct ShardGroups {
  std::shared_ptr<ProcessGroup> all;
  std::shared_ptr<ProcessGroup> shards;    // neighbouring ranks, each with a different shard
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
