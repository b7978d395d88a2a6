// Which options of a reduction go together, and the buckets that they need.
#pragma once

#include <vector>

#include "dist/flat_layout.hpp"
#include "dist/rank_groups.hpp"
#include "dist/shard_groups.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"

namespace npu_train::detail {

struct ReductionRules {
  const DistOptions& options;      // resolved
  const Compression& compression;  // that takes place: with one group of ranks none
  Sharding sharding;
  const ShardGroups& shards;
  const RankGroups& groups;
  bool scatters;  // native sums of shards travel between devices: each rank gets its own

  bool carries_errors() const { return compression.carries_errors() && shards.all->size() > 1; }
  // Error(Usage) names the option, and what is allowed.
  void check_options() const;
  // `unit_of`: of each parameter, with Sharding::Parameters.
  std::vector<FlatBucket> layout(const ParameterSet& parameters, const std::vector<size_t>& unit_of) const;
};

}  // namespace npu_train::detail
