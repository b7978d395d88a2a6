// Groups of neighbouring ranks, whose first ranks lead them.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

struct RankGroups {
  int count = 1;                          // of groups; the last one may be smaller
  std::shared_ptr<ProcessGroup> members;  // of this rank's group; nullptr if there is one group only
  std::shared_ptr<ProcessGroup> leaders;  // the first rank of each group; nullptr on other ranks

  // Every rank makes two groups, in the same order: a rank that does not lead makes one of its own meanwhile.
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

}  // namespace npu_train::detail
