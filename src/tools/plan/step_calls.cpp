#include "npu_train/tools/plan/step_calls.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/process_group.hpp"
#include "tools/plan/bucket_calls.hpp"

namespace npu_train {
namespace {

constexpr int64_t kBlock = 64;          // elements; parts of buckets begin at multiples of this
constexpr int64_t kInlineBytes = 488;   // bytes of an agreement that are sent by its first collective
constexpr int64_t kFlagsInNumber = 32;  // presence flags that one number of an agreement holds

Sharding sharding_in(const std::string& strategy) {
  const auto named = sharding_of(strategy);
  check(named || strategy == "single", ErrorKind::Usage, "plan", "'", strategy, "' is not a strategy; allowed: single, ",
        join(std::vector<std::string>(kStrategyNames.begin(), kStrategyNames.end())));
  return named.value_or(Sharding::None);
}

using detail::BucketSize;
using detail::padded_to;

// Computes bucket sizes as flat_layout and unit_layout of room dist do.
void add_sizes(const StepWork& work, int divided_by, int64_t bucket_bytes, const std::vector<size_t>& indices,
               std::vector<BucketSize>& closed) {
  std::vector<BucketSize> open;  // at most one for each element size, with and without masters
  const auto close = [&](BucketSize size) {
    size.elements = padded_to(size.elements, kBlock * divided_by);
    closed.push_back(size);
  };
  for (const auto i : indices) {
    const auto& p = work.parameters[i];
    auto bucket = std::find_if(open.begin(), open.end(),
                               [&](const BucketSize& b) { return b.element_bytes == p.element_bytes && b.has_master == p.has_master; });
    if (bucket == open.end())
      bucket = open.insert(open.end(),
                           {.element_bytes = p.element_bytes, .model_bytes = p.model_bytes, .has_master = p.has_master, .unit = p.unit});
    bucket->elements = padded_to(bucket->elements + p.elements, kBlock);
    bucket->ready = std::max(bucket->ready, p.ready);
    bucket->parameters.push_back(i);
    if (bucket_bytes == 0 || bucket->bytes() < (closed.empty() ? bucket_bytes / 8 : bucket_bytes)) continue;
    close(*bucket);
    open.erase(bucket);
  }
  for (const auto& bucket : open) close(bucket);
}

std::vector<BucketSize> sizes_of(const StepWork& work, int divided_by, bool by_unit) {
  std::vector<BucketSize> out;
  const auto add = [&](int64_t bytes, const auto& takes) {
    std::vector<size_t> backwards;
    for (size_t i = work.parameters.size(); i-- > 0;)
      if (takes(work.parameters[i])) backwards.push_back(i);
    add_sizes(work, divided_by, bytes, backwards, out);
  };
  if (by_unit) {
    std::set<int64_t> model_bytes;
    for (const auto& p : work.parameters) model_bytes.insert(p.model_bytes);
    for (size_t unit = work.units.size() + 1; unit-- > 0;)
      for (const auto bytes : model_bytes) add(0, [&](const auto& p) { return p.unit == unit && p.model_bytes == bytes; });
  } else {
    add(std::max<int64_t>(1, static_cast<int64_t>(work.dist.bucket_mib * 1048576)), [](const auto& /*p*/) { return true; });
  }
  double ready = 0;
  for (auto& size : out) ready = size.ready = std::max(ready, size.ready);  // buckets are sent in order, each after the previous one
  return out;
}

// Returns the resolved options `work.dist` with the group size of `placement`.
DistOptions placed(const StepWork& work, const Placement& placement, Sharding sharding) {
  auto dist = work.dist;
  dist.group_size = placement.group_size > 0 ? std::to_string(placement.group_size) : "none";
  dist.check_groups();
  return dist.resolved(work.between_devices ? "its own" : ProcessGroup::kHostTransport, sharding);
}

void check_modelled(const StepWork& work, const Placement& placement) {
  check(work.dist.shard_by == "elements", ErrorKind::Usage, "plan", "dist.shard_by=", work.dist.shard_by,
        " is not modelled; allowed: elements");
  check(work.dist.offload == "none", ErrorKind::Usage, "plan", "dist.offload=", work.dist.offload, " is not modelled; allowed: none");
  check(placement.group_size >= 0, ErrorKind::Usage, "plan", placement.group_size,
        " ranks in a group; allowed: 1 or more, or 0: no groups");
  check(placement.ranks >= 1 && placement.shards() >= 1 && placement.ranks % placement.shards() == 0, ErrorKind::Usage, "plan",
        placement.shards(), " shards of ", placement.ranks, " ranks; allowed: a number that divides that of ranks");
  check(placement.strategy == "single" ? placement.ranks == 1 : placement.ranks > 1, ErrorKind::Usage, "plan", placement.strategy, " with ",
        placement.ranks, placement.ranks == 1 ? " rank" : " ranks", "; allowed: single with 1, ddp, zero1, zero2 and zero3 with more");
}

// Checks for combinations that the engine refuses.
void check_possible(const DistOptions& dist, const Placement& placement, Sharding sharding, bool between_devices) {
  const bool one_group = placement.group_size > 0 && placement.groups() == 1;
  const bool carries = !one_group && dist.compressed().has_error_feedback();
  check(!carries || sharding != Sharding::Parameters, ErrorKind::Usage, "plan", "dist.compression=", dist.compression,
        " is not possible with zero3; allowed with it: none, bf16, fp16");
  check(!carries || placement.shards() == placement.ranks, ErrorKind::Usage, "plan", "dist.compression=", dist.compression,
        " is not possible with shards among ", placement.shards(), " of ", placement.ranks, " ranks; allowed: among all");
  const bool scatters = between_devices && sharding != Sharding::None && placement.group_size == 0;
  check(dist.adds_in_order() || dist.reduce == "window" || scatters, ErrorKind::Usage, "plan",
        "dist.reduce=micro_batch is not possible with native sums, which dist.group_size selects; allowed: window");
  check(dist.adds_in_order() || dist.reduce_dtype == "fp32", ErrorKind::Usage, "plan", "dist.reduce_dtype=", dist.reduce_dtype,
        " is not possible with native sums, which dist.group_size selects; allowed: fp32");
}

}  // namespace

double StepWork::parameter_bytes() const {
  double out = 0;
  for (const auto& p : parameters) out += static_cast<double>(p.elements * p.element_bytes);
  return out;
}

int group_size_of(const DistOptions& dist, int ranks, int per_machine) {
  dist.check_groups();
  if (!dist.has_groups()) return 0;
  if (dist.group_size != "auto") return std::min(ranks, std::stoi(dist.group_size));
  return ranks % per_machine == 0 ? per_machine : ranks;  // one group of all ranks if the machines would have different numbers of ranks
}

StepCalls step_calls(const StepWork& work, const Placement& placement) {
  check_modelled(work, placement);
  const auto sharding = sharding_in(placement.strategy);
  StepCalls out;
  if (placement.ranks == 1) return out;
  const auto dist = placed(work, placement, sharding);
  check_possible(dist, placement, sharding, work.between_devices);
  const bool in_units = sharding == Sharding::Parameters;
  const detail::BucketCalls of_bucket(work, dist, placement, sharding);
  const auto sizes = sizes_of(work, in_units ? placement.ranks : of_bucket.divided_by(), in_units);
  for (const auto& size : sizes) out.buckets.push_back(of_bucket.of(size));
  out.every_micro_batch = dist.reduce == "micro_batch";
  const auto gather_of = [&](const BucketSize& size) {
    const auto bytes = size.elements * (in_units || size.has_master ? size.model_bytes : size.element_bytes);
    return StepCall{.kind = StepCall::Kind::AllGather, .bytes = bytes, .ranks = placement.shards()};
  };
  if (in_units) {
    out.units.resize(work.units.size() + 1);
    for (const auto& size : sizes) out.units[size.unit].push_back(gather_of(size));
  } else if (sharding != Sharding::None) {
    for (const auto& size : sizes) out.after.push_back(gather_of(size));
  }
  const auto flags = (static_cast<int64_t>(work.parameters.size()) + kFlagsInNumber - 1) / kFlagsInNumber;
  constexpr int64_t kSums = 3, kNumber = 8;
  out.agreements = 2 + (out.every_micro_batch || in_units ? 1 : 0) + (kNumber * (kSums + flags) > kInlineBytes ? 1 : 0);
  return out;
}

std::vector<StepCall> all_calls(const StepWork& work, const Placement& placement, const StepCalls& calls, bool leads) {
  std::vector<StepCall> out;
  const auto add = [&](const std::vector<StepCall>& more) {
    std::copy_if(more.begin(), more.end(), std::back_inserter(out), [&](const StepCall& call) { return leads || !call.of_leaders; });
  };
  const bool in_units = placement.strategy == "zero3";
  for (int64_t m = 0; m < work.micro_batches; ++m) {
    const bool last = m + 1 == work.micro_batches;
    for (size_t u = m == 0 ? 0 : 1; u < calls.units.size(); ++u) add(calls.units[u]);
    for (size_t u = 1; u + 1 < calls.units.size(); ++u) add(calls.units[u]);  // the last block stays complete until the backward pass
    if (!last && !calls.every_micro_batch) continue;
    for (const auto& bucket : calls.buckets) {
      add({bucket.exchange});
      if (last) add(bucket.then);
    }
  }
  if (!in_units) add(calls.after);
  return out;
}

}  // namespace npu_train
