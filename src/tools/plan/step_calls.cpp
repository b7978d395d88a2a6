#include "npu_train/tools/plan/step_calls.hpp"

#include <algorithm>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train {
namespace {

constexpr int64_t kBlock = 64;   // elements: parts of buckets begin at multiples
constexpr int64_t kCoded = 256;  // elements that share a scale in int8
constexpr int64_t kScaleBytes = 4;
constexpr int64_t kInlineBytes = 488;   // of an agreement that travel with its first collective
constexpr int64_t kFlagsInNumber = 32;  // presence of gradients

int64_t padded_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

Sharding sharding_of(const std::string& strategy) {
  if (strategy == "single" || strategy == "ddp") return Sharding::None;
  if (strategy == "zero1") return Sharding::Optimizer;
  if (strategy == "zero2") return Sharding::Gradients;
  check(strategy == "zero3", ErrorKind::Usage, "plan", "'", strategy, "' is not a strategy; allowed: single, ddp, zero1, zero2, zero3");
  return Sharding::Parameters;
}

// Sizes of buckets as flat_layout and unit_layout of room dist make them.
struct Size {
  int64_t elements = 0, element_bytes = 4, model_bytes = 4;
  double ready = 0;
  size_t unit = 0;
  int64_t bytes() const { return elements * element_bytes; }
};

void add_sizes(const StepWork& work, int ranks, int64_t bucket_bytes, const std::vector<size_t>& indices, std::vector<Size>& closed) {
  std::vector<Size> open;  // at most one for each size of elements
  const auto close = [&](Size size) {
    size.elements = padded_to(size.elements, kBlock * ranks);
    closed.push_back(size);
  };
  for (const auto i : indices) {
    const auto& p = work.parameters[i];
    auto bucket = std::find_if(open.begin(), open.end(), [&](const Size& b) { return b.element_bytes == p.element_bytes; });
    if (bucket == open.end())
      bucket = open.insert(open.end(), {.element_bytes = p.element_bytes, .model_bytes = p.model_bytes, .unit = p.unit});
    bucket->elements = padded_to(bucket->elements + p.elements, kBlock);
    bucket->ready = std::max(bucket->ready, p.ready);
    if (bucket_bytes == 0 || bucket->bytes() < (closed.empty() ? bucket_bytes / 8 : bucket_bytes)) continue;
    close(*bucket);
    open.erase(bucket);
  }
  for (const auto& bucket : open) close(bucket);
}

std::vector<Size> sizes_of(const StepWork& work, int ranks, bool by_unit) {
  std::vector<Size> out;
  const auto add = [&](int64_t bytes, const auto& takes) {
    std::vector<size_t> backwards;
    for (size_t i = work.parameters.size(); i-- > 0;)
      if (takes(work.parameters[i])) backwards.push_back(i);
    add_sizes(work, ranks, bytes, backwards, out);
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
  for (auto& size : out) ready = size.ready = std::max(ready, size.ready);  // sent in order
  return out;
}

// Of the part of one rank, as it travels.
int64_t travelling_bytes(const Size& size, int64_t elements, const DistOptions& dist) {
  const auto compression = Compression::parse(dist.compression);
  if (size.element_bytes != 4) return elements * size.element_bytes;
  if (compression.values == "int8") return elements + (elements + kCoded - 1) / kCoded * kScaleBytes;
  const bool half = dist.reduce_dtype == "bf16" || compression.values == "bf16" || compression.values == "fp16";
  return elements * (half ? 2 : 4);
}

void check_modelled(const StepWork& work, const Placement& placement) {
  const auto compression = Compression::parse(work.dist.compression);
  check(compression.method == Compression::Method::All, ErrorKind::Usage, "plan", "dist.compression=", work.dist.compression,
        " is not modelled; allowed: none, bf16, fp16, int8");
  check(work.dist.shard_by == "elements", ErrorKind::Usage, "plan", "dist.shard_by=", work.dist.shard_by,
        " is not modelled; allowed: elements");
  check(work.dist.offload == "none", ErrorKind::Usage, "plan", "dist.offload=", work.dist.offload, " is not modelled; allowed: none");
  check(!work.dist.has_groups(), ErrorKind::Usage, "plan", "dist.group_size=", work.dist.group_size, " is not modelled; allowed: none");
  check(placement.ranks >= 1 && placement.shards() >= 1 && placement.ranks % placement.shards() == 0, ErrorKind::Usage, "plan",
        placement.shards(), " shards of ", placement.ranks, " ranks; allowed: a number that divides that of ranks");
  check(placement.strategy == "single" ? placement.ranks == 1 : placement.ranks > 1, ErrorKind::Usage, "plan", placement.strategy, " with ",
        placement.ranks, placement.ranks == 1 ? " rank" : " ranks", "; allowed: single with 1, ddp, zero1, zero2 and zero3 with more");
}

StepCalls::Bucket bucket_of(const Size& size, const DistOptions& dist, const Placement& placement, Sharding sharding) {
  using Kind = StepCall::Kind;
  const int ranks = placement.ranks, shards = placement.shards();
  StepCalls::Bucket out{.ready = size.ready, .unit = size.unit, .bytes = size.bytes()};
  const auto part = travelling_bytes(size, size.elements / ranks, dist);
  const bool ordered = dist.adds_in_order();
  out.exchange = {.kind = ordered ? Kind::AllToAll : Kind::AllReduce, .bytes = part * ranks, .ranks = ranks};
  if (!ordered) return out;
  if (sharding == Sharding::None) {
    out.gather.push_back({.kind = Kind::AllGather, .bytes = part * ranks, .ranks = ranks});
  } else if (shards < ranks) {
    out.gather.push_back({.kind = Kind::AllGather, .bytes = size.bytes() / shards, .ranks = ranks / shards, .is_strided = true});
  }
  return out;
}

}  // namespace

double StepWork::parameter_bytes() const {
  double out = 0;
  for (const auto& p : parameters) out += static_cast<double>(p.elements * p.element_bytes);
  return out;
}

StepCalls step_calls(const StepWork& work, const Placement& placement) {
  check_modelled(work, placement);
  const auto sharding = sharding_of(placement.strategy);
  StepCalls out;
  if (placement.ranks == 1) return out;
  const auto dist = work.dist.resolved(work.between_devices ? "its own" : ProcessGroup::kHostTransport, sharding);
  const bool in_units = sharding == Sharding::Parameters;
  const auto sizes = sizes_of(work, placement.ranks, in_units);
  for (const auto& size : sizes) out.buckets.push_back(bucket_of(size, dist, placement, sharding));
  out.every_micro_batch = dist.reduce == "micro_batch";
  const auto gather_of = [&](const Size& size) {
    const auto bytes = size.elements * (in_units ? size.model_bytes : size.element_bytes);
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

std::vector<StepCall> all_calls(const StepWork& work, const Placement& placement, const StepCalls& calls) {
  std::vector<StepCall> out;
  const auto add = [&](const std::vector<StepCall>& more) { out.insert(out.end(), more.begin(), more.end()); };
  const bool in_units = placement.strategy == "zero3";
  for (int64_t m = 0; m < work.micro_batches; ++m) {
    const bool last = m + 1 == work.micro_batches;
    for (size_t u = m == 0 ? 0 : 1; u < calls.units.size(); ++u) add(calls.units[u]);
    for (size_t u = 1; u + 1 < calls.units.size(); ++u) add(calls.units[u]);  // the last block stays for the backward pass
    if (!last && !calls.every_micro_batch) continue;
    for (const auto& bucket : calls.buckets) {
      out.push_back(bucket.exchange);
      if (last) add(bucket.gather);
    }
  }
  if (!in_units) add(calls.after);
  return out;
}

}  // namespace npu_train
