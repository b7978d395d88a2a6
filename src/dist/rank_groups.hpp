// Groups of neighbouring ranks, each led by its first rank.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

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

}  // namespace npu_train::detail
