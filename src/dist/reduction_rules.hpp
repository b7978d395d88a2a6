// Rules for the options of a reduction: which of them may be combined, and the buckets that they need.
#pragma once

#include <vector>

#include "dist/flat_layout.hpp"
#include "dist/rank_groups.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"

namespace npu_train::detail {

struct ReductionRules {
  const DistOptions& options;      // resolved
  const Compression& compression;  // the compression that takes effect; none if there is a single group of ranks
  Sharding sharding;
  const ShardGroups& shards;
  const RankGroups& groups;
  bool scatters;  // native sums between devices give each rank only its shard

  bool has_error_feedback() const { return compression.has_error_feedback() && shards.all->size() > 1; }
  // Throws Error(Usage) if options contradict each other; it names the option and the allowed values.
  void check_options() const;
  // Returns the layout of the buckets. `unit_of`: the unit of each parameter, for Sharding::Parameters.
  std::vector<FlatBucket> layout(const ParameterSet& parameters, const std::vector<size_t>& unit_of) const;
};

}  // namespace npu_train::detail
