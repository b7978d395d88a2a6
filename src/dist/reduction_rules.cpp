#include "dist/reduction_rules.hpp"

#include <numeric>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/gradient_sharding.hpp"

namespace npu_train::detail {

void ReductionRules::check_options() const {
  const bool ordered = options.adds_in_order(), carries = has_error_feedback();
  const char* others = groups.count > 1 ? "none" : "none, bf16, fp16";
  check(!carries || sharding != Sharding::Parameters, ErrorKind::Usage, "dist.compression", options.compression,
        " exchanges in an order of its own, which trainer.strategy=zero3 does not allow; allowed with it: ", others);
  check(!carries || shards.replicas == nullptr, ErrorKind::Usage, "dist.compression", options.compression,
        " gives each rank another shard; allowed with dist.shard_size=", options.shard_size, ": ", others);
  check(ordered || options.reduce == "window" || (scatters && !options.has_groups()), ErrorKind::Usage, "dist.reduce",
        "micro_batch adds in order, or shards between devices; allowed with dist.reduction=native: window");
  check(ordered || options.reduce_dtype == "fp32", ErrorKind::Usage, "dist.reduce_dtype",
        "bf16 gradients are added in fp32, which dist.reduction=native does not do; allowed: fp32");
  check(!(options.debug && groups.count > 1 && compression.method == Compression::Method::LowRank), ErrorKind::Usage, "dist.debug",
        "compares collectives one by one, and dist.compression=", options.compression,
        " exchanges twice between groups only; allowed with both and dist.group_size=", options.group_size, ": false");
  if (options.in_flight == 0) return;
  check(sharding != Sharding::Parameters, ErrorKind::Usage, "dist.in_flight", options.in_flight,
        " may wait for a rank that waits for parameters; allowed with trainer.strategy=zero3: 0");
  check(compression.method != Compression::Method::LowRank, ErrorKind::Usage, "dist.in_flight", options.in_flight,
        " does not fit a second exchange of all buckets; allowed with dist.compression=", options.compression, ": 0");
}

std::vector<FlatBucket> ReductionRules::layout(const ParameterSet& parameters, const std::vector<size_t>& unit_of) const {
  const int ranks = shards.all->size();
  const bool divides_elements = options.shard_by == "elements";
  check(divides_elements || shards.replicas == nullptr, ErrorKind::Usage, "dist.shard_by", options.shard_by,
        " divides among all ranks; allowed with dist.shard_size=", options.shard_size, ": elements");
  check(divides_elements || sharding == Sharding::Optimizer || sharding == Sharding::Gradients, ErrorKind::Usage, "dist.shard_by",
        options.shard_by, " selects how zero1 and zero2 divide; allowed with other strategies: elements");
  check(divides_elements || groups.count == 1 || !has_error_feedback(), ErrorKind::Usage, "dist.shard_by", options.shard_by,
        " gives complete parameters to ranks, and dist.compression=", options.compression,
        " divides them among groups; allowed with both: elements");
  if (sharding == Sharding::Parameters) return unit_layout(parameters, ranks, unit_of);
  const auto owners = divides_elements ? std::vector<int>() : shards_of(parameters, ranks, options.shard_by);
  int divided_by = ranks;
  if (groups.count > 1 && has_error_feedback())  // elements are divided among the first ranks of groups, and with shards among all ranks
    divided_by = sharding == Sharding::None ? groups.count : std::lcm(divided_by, groups.count);
  return flat_layout(parameters, divided_by, static_cast<int64_t>(options.bucket_mib * 1048576), owners);
}

}  // namespace npu_train::detail
