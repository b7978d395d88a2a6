#include "npu_train/dist/options.hpp"

#include <algorithm>
#include <charconv>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train {
namespace {

// Returns the positive number in `text`; 0 if it is not one.
int positive(const std::string& text) {
  int out = 0;
  const auto* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && stop == end && out > 0 ? out : 0;
}

}  // namespace

std::optional<Sharding> sharding_of(const std::string& strategy) {
  const auto* const found = std::find(kStrategyNames.begin(), kStrategyNames.end(), strategy);
  return found == kStrategyNames.end() ? std::nullopt : std::optional(static_cast<Sharding>(found - kStrategyNames.begin()));
}

const ConfigTable<DistOptions>& DistOptions::config_table() {
  using T = DistOptions;
  static const auto table =
      ConfigTable<T>("dist")
          .field(
              "preset", &T::preset,
              "communication: less on links between machines; it sets group_size, reduction, compression and in_flight where they are not "
              "given, and the end of the run reports what the backward pass has hidden",
              one_of({"none", "communication"}))
          .field("backend", &T::backend,
                 "what carries gradients; auto: NCCL between CUDA devices, HCCL between NPUs, else Gloo, by copies in host memory",
                 one_of({"auto", "gloo", "nccl", "hccl"}))
          .field("reduction", &T::reduction,
                 "ordered: gradients are added in the order of ranks, with the bits of one process; native: by the transport's all_reduce; "
                 "auto: native on NCCL and HCCL, unless reduce, reduce_dtype or compression needs an order; ordered on Gloo",
                 one_of({"auto", "ordered", "native"}))
          .field("group_size", &T::group_size,
                 "ranks that add their gradients inside a group first; then the first ranks of all groups add, and give the sum to their "
                 "groups: none, a number, or auto: those of one machine; with native sums, which it selects")
          .field("reduce", &T::reduce,
                 "gradients are sent once per window, or after each micro-batch (equal to one process for any number); auto: window, with "
                 "trainer.strategy=zero2 and zero3 micro_batch, unless compression carries errors",
                 one_of({"auto", "window", "micro_batch"}))
          .field("reduce_dtype", &T::reduce_dtype,
                 "fp32 gradients travel in it; bf16: half the bytes, sums in fp32, with other bits than one process; not with native",
                 one_of({"fp32", "bf16"}))
          .field("compression", &T::compression,
                 "how gradients are compressed between ranks: none, bf16, fp16, int8, topk:SHARE, ratio:R, topk:SHARE+ratio:R, "
                 "powersgd:RANK; topk and ratio also with +bf16, +fp16 or +int8")
          .field("compression_start", &T::compression_start,
                 "steps at the start of a run whose gradients travel complete, before a compression that carries errors begins",
                 at_least(0))
          .field("shard_by", &T::shard_by,
                 "what trainer.strategy=zero1 and zero2 divide among ranks: elements, evenly, or complete parameters: by "
                 "layer or by size",
                 one_of({"elements", "layer", "parameter_size"}))
          .field("shard_size", &T::shard_size,
                 "ranks that divide what trainer.strategy=zero1 to zero3 shard; each group of as many ranks has all of it: a number that "
                 "divides theirs; auto: the ranks of one machine, if all have as many")
          .field("offload", &T::offload,
                 "optimizer: the optimizer computes on the host, whose memory has its state and averages of weights, also in one process; "
                 "none: on the device",
                 one_of({"none", "optimizer"}))
          .field("overlap", &T::overlap, "gradients are sent while the backward pass runs; false: after it, to measure what that hides")
          .field("bucket_mib", &T::bucket_mib, "MiB of gradients that are sent together", between(0.001, 4096))
          .field("in_flight", &T::in_flight, "buckets that are on their way at the same time, at most; 0: no limit", between(0, 1024))
          .field("check_every", &T::check_every,
                 "steps between comparisons of the weights and of the operators of all ranks, a pass over the weights each; 0: none",
                 at_least(0))
          .field("debug", &T::debug,
                 "compares every collective with those of the other ranks before it runs, and names the rank that differs")
          .field("timeout", &T::timeout, "seconds that a rank waits for the others before it gives up", between(1, 86400));
  return table;
}

int DistOptions::shard_size_of(const ProcessGroup& group, Sharding sharding) const {
  const int ranks = group.size(), local = group.local_size();
  if (shard_size == "auto") return sharding != Sharding::None && local > 1 && ranks % local == 0 ? local : ranks;
  const int size = positive(shard_size);
  check(size >= 1 && size <= ranks && ranks % size == 0, ErrorKind::Usage, "dist.shard_size", "'", shard_size, "' of ", ranks,
        " ranks; allowed: auto, or a number that divides that of ranks");
  check(sharding != Sharding::None || size == ranks, ErrorKind::Usage, "dist.shard_size", shard_size,
        " is for shards, of which trainer.strategy=ddp has none; allowed with it: auto");
  return size;
}

void DistOptions::check_groups() const {
  check(group_size == "none" || group_size == "auto" || positive(group_size) > 0, ErrorKind::Usage, "dist.group_size", "'", group_size,
        "'; allowed: none, auto, or the number of ranks in a group");
  if (!has_groups()) return;
  check(reduction != "ordered", ErrorKind::Usage, "dist.group_size", group_size,
        " adds inside groups of ranks first, in another order than theirs; allowed with dist.reduction=ordered: none; with groups: auto, "
        "native");
  const auto compressed = Compression::parse(compression);
  check(compressed.none() || compressed.has_error_feedback(), ErrorKind::Usage, "dist.group_size", "dist.compression=", compression,
        " is for sums of all ranks; allowed between groups: none, int8, topk:SHARE, ratio:R, powersgd:RANK");
}

int DistOptions::group_size_of(const ProcessGroup& group) const {
  check_groups();
  if (!has_groups()) return group.size();
  return std::min(group.size(), group_size == "auto" ? group.local_size() : positive(group_size));
}

ConfigNode DistOptions::preset_values(const std::string& preset) {
  if (preset == "none") return ConfigNode::map();
  check(preset == "communication", ErrorKind::Usage, "dist.preset", "'", preset, "'; allowed: none, communication");
  return {{"group_size", "8"}, {"reduction", "native"}, {"compression", "topk:0.01+ratio:0.1+int8"}, {"in_flight", 4}};
}

DistOptions DistOptions::of_preset(const std::string& preset) {
  auto node = preset_values(preset);
  node.set("preset", ConfigNode(preset));
  return bind<DistOptions>(node, "dist");
}

DistOptions DistOptions::resolved(const std::string& transport, Sharding sharding) const {
  auto out = *this;
  const auto compressed = Compression::parse(compression);
  // Between devices a native sum gives each rank only its shard (reduce_scatter). In host memory it gives every rank the complete sum, and
  // an ordered sum sends half as much.
  const bool scatters = sharding != Sharding::None && transport != ProcessGroup::kHostTransport;
  const bool by_micro_batch =
      sharding >= Sharding::Gradients && (reduction != "native" || scatters) && !has_groups() && !compressed.has_error_feedback();
  if (reduce == "auto") out.reduce = by_micro_batch ? "micro_batch" : "window";
  const bool needs_order =
      reduce == "micro_batch" || reduce_dtype == "bf16" || !compressed.none() || (sharding != Sharding::None && !scatters);
  if (reduction == "auto" && has_groups())
    out.reduction = "native";
  else if (reduction == "auto")
    out.reduction = transport == ProcessGroup::kHostTransport || needs_order ? "ordered" : "native";
  return out;
}

Compression DistOptions::compressed() const {
  const auto out = Compression::parse(compression);
  if (out.none()) return out;
  check(compression_start == 0 || out.has_error_feedback(), ErrorKind::Usage, "dist.compression", compression,
        " carries no errors; allowed with dist.compression_start=", compression_start, ": none, int8, topk:SHARE, ratio:R, powersgd:RANK");
  check(
      reduction != "native" || has_groups(), ErrorKind::Usage, "dist.compression",
      "compressed gradients are added in fp32 and in the order of ranks, which dist.reduction=native does not do; allowed: auto, ordered, "
      "and native with dist.group_size, which compresses between groups");
  check(reduce_dtype == "fp32", ErrorKind::Usage, "dist.compression",
        "dist.reduce_dtype=bf16 is the same as dist.compression=bf16; use one of them");
  check(!out.has_error_feedback() || reduce != "micro_batch", ErrorKind::Usage, "dist.compression", compression,
        " compresses the sum of a window; allowed with dist.reduce=micro_batch: none, bf16, fp16");
  return out;
}

void check_collectives(int local_ranks, const Device& device, const DistOptions& options) {
  const auto can = backend_of(device).capabilities(device);
  const bool fits = local_ranks == 1 || local_ranks == 2 || local_ranks == 4 || local_ranks == 8;
  check(!can.ranks_by_powers_of_two || fits || options.backend == "gloo", ErrorKind::Usage, "trainer.devices", device.str(),
        " trains with 1, 2, 4 or 8 processes on one machine; ", local_ranks,
        " were started; hint: dist.backend=gloo sends gradients through host memory, among any number");
  check(can.bf16_collectives || options.reduce_dtype != "bf16", ErrorKind::Usage, "dist.reduce_dtype", device.str(),
        " exchanges no bf16; allowed: fp32");
  check(can.bf16_collectives || options.compression != "bf16", ErrorKind::Usage, "dist.compression", device.str(),
        " exchanges no bf16; allowed: fp16, and methods that send bytes, such as int8");
}

}  // namespace npu_train
