#include "tools/plan/bucket_calls.hpp"

#include <algorithm>
#include <numeric>

namespace npu_train::detail {
namespace {

using Kind = StepCall::Kind;

int64_t elements_of(const StepWork& work, const BucketSize& size) {
  int64_t out = 0;
  for (const auto i : size.parameters) out += work.parameters[i].elements;
  return out;
}

}  // namespace

BucketCalls::BucketCalls(const StepWork& work, const DistOptions& dist, const Placement& placement, Sharding sharding)
    : work_(work),
      dist_(dist),
      placement_(placement),
      in_shards_(sharding != Sharding::None),
      // With groups, only the exchange between groups is compressed; one group of all ranks has no such exchange.
      compression_(placement.group_size > 0 && placement.groups() == 1 ? Compression() : Compression::parse(dist.compression)) {}

int BucketCalls::divided_by() const {
  if (placement_.groups() == 1 || !compression_.has_error_feedback()) return placement_.ranks;
  return in_shards_ ? std::lcm(placement_.ranks, placement_.groups()) : placement_.groups();
}

StepCalls::Bucket BucketCalls::of(const BucketSize& size) const {
  const auto calls = placement_.groups() > 1
                         ? grouped(size)
                         : sum(size, {.ranks = placement_.ranks, .stride = 1, .in_shards = in_shards_, .leaders = false});
  return {.ready = size.ready, .unit = size.unit, .bytes = size.bytes(), .exchange = calls[0], .then = {calls.begin() + 1, calls.end()}};
}

StepCall BucketCalls::call(Kind kind, int64_t bytes, const Adding& by) const {
  return {.kind = kind, .bytes = bytes, .ranks = by.ranks, .stride = by.stride, .of_leaders = by.leaders};
}

// Reduces inside each group, sums between the first ranks of the groups, and distributes the sums inside each group.
std::vector<StepCall> BucketCalls::grouped(const BucketSize& size) const {
  const Adding members{.ranks = placement_.group_size, .stride = 1, .in_shards = false, .leaders = false};
  std::vector<StepCall> out;
  if (members.ranks > 1) out.push_back(call(Kind::Reduce, size.bytes(), members));
  const auto between = sum(size, {.ranks = placement_.groups(), .stride = members.ranks, .in_shards = false, .leaders = true});
  out.insert(out.end(), between.begin(), between.end());
  if (members.ranks > 1) out.push_back(call(Kind::Distribute, size.bytes(), members));
  return out;
}

std::vector<StepCall> BucketCalls::sum(const BucketSize& size, const Adding& by) const {
  const bool is_float = size.element_bytes == 4;
  if (compression_.has_error_feedback() && is_float) return compressed(size, by);
  if (!dist_.adds_in_order())
    return by.in_shards && work_.between_devices ? scattered(size, by) : std::vector{call(Kind::AllReduce, size.bytes(), by)};
  const bool half = is_float && (dist_.reduce_dtype == "bf16" || !compression_.none());
  const auto bytes = half ? size.elements * 2 : size.bytes();
  std::vector<StepCall> out{call(Kind::AllToAll, bytes, by)};
  const int shards = placement_.shards();
  if (!by.in_shards)
    out.push_back(call(Kind::AllGather, bytes, by));
  else if (shards < by.ranks)
    out.push_back({.kind = Kind::AllGather, .bytes = size.bytes() / shards, .ranks = by.ranks / shards, .stride = shards});
  return out;
}

// Models a reduce-scatter as an all-gather, which sends the same messages and bytes in the opposite direction. The ranks with the same
// shard then add their partial sums.
std::vector<StepCall> BucketCalls::scattered(const BucketSize& size, const Adding& by) const {
  const int shards = placement_.shards();
  std::vector<StepCall> out{{.kind = Kind::AllGather, .bytes = size.bytes(), .ranks = shards}};
  if (shards < by.ranks)
    out.push_back({.kind = Kind::AllReduce, .bytes = size.bytes() / shards, .ranks = by.ranks / shards, .stride = shards});
  return out;
}

// Adds an exchange and, with `gathers`, a gather; `of_part`: bytes of one rank's part.
void BucketCalls::add_coded(int64_t of_part, const Adding& by, bool gathers, std::vector<StepCall>& out) const {
  const auto bytes = of_part * by.ranks;
  out.push_back(call(Kind::AllToAll, bytes, by));
  if (gathers) out.push_back(call(Kind::AllGather, bytes, by));
}

std::vector<StepCall> BucketCalls::compressed(const BucketSize& size, const Adding& by) const {
  if (compression_.method == Compression::Method::LowRank) return low_rank(size, by);
  const auto part = size.elements / by.ranks;
  const int bits = compression_.bits_within_ratio(part);
  if (compression_.method == Compression::Method::Largest && bits == 0) {
    const auto sent = compression_.elements_sent(elements_of(work_, size), by.ranks, by.in_shards);
    return {call(Kind::AllGather, (Compression::kPlaceBytes * sent + compression_.coded_bytes(sent)) * by.ranks, by)};
  }
  std::vector<StepCall> out;
  add_coded(bits > 0 ? Compression::integer_bytes(part, bits) : compression_.coded_bytes(part), by, !by.in_shards, out);
  return out;
}

// Sends one factor of each matrix together with all parameters that are not matrices, then the other factor.
std::vector<StepCall> BucketCalls::low_rank(const BucketSize& size, const Adding& by) const {
  int64_t first = 0, second = 0;
  for (const auto i : size.parameters) {
    const auto& p = work_.parameters[i];
    const auto columns = p.rows > 0 ? p.elements / p.rows : 0, rank = std::min({compression_.rank, p.rows, columns});
    const bool is_smaller = rank > 0 && (p.rows + columns) * rank < p.elements;
    first += is_smaller ? p.rows * rank : p.elements;
    second += is_smaller ? columns * rank : 0;
  }
  std::vector<StepCall> out;
  const auto of_part = [&](int64_t elements) { return compression_.coded_bytes(padded_to(elements, by.ranks) / by.ranks); };
  add_coded(of_part(first), by, true, out);
  if (second > 0) add_coded(of_part(second), by, true, out);
  return out;
}

}  // namespace npu_train::detail
