#include "npu_train/dist/options.hpp"

#include <charconv>

#include "npu_train/dist/process_group.hpp"

namespace npu_train {

const ConfigTable<DistOptions>& DistOptions::config_table() {
  using T = DistOptions;
  static const auto table =
      ConfigTable<T>("dist")
          .field("backend", &T::backend,
                 "what carries gradients; auto: NCCL between CUDA devices, HCCL between NPUs, else Gloo, by copies in host memory",
                 one_of({"auto", "gloo", "nccl", "hccl"}))
          .field("reduction", &T::reduction,
                 "ordered: gradients are added in the order of ranks, with the bits of one process; native: by the transport's all_reduce; "
                 "auto: native on NCCL and HCCL, unless reduce, reduce_dtype or compression needs an order; ordered on Gloo",
                 one_of({"auto", "ordered", "native"}))
          .field("reduce", &T::reduce,
                 "gradients are sent once per window, or after each micro-batch (equal to one process for any number); auto: window, with "
                 "trainer.strategy=zero2 and zero3 micro_batch, unless compression carries errors",
                 one_of({"auto", "window", "micro_batch"}))
          .field("reduce_dtype", &T::reduce_dtype,
                 "fp32 gradients travel in it; bf16: half the bytes, sums in fp32, with other bits than one process; not with native",
                 one_of({"fp32", "bf16"}))
          .field(
              "compression", &T::compression,
              "how gradients are compressed between ranks: none, bf16, fp16, int8, topk:SHARE, ratio:R, powersgd:RANK; topk and ratio also "
              "with +bf16, +fp16 or +int8")
          .field("shard_by", &T::shard_by,
                 "what trainer.strategy=zero1 and zero2 divide among ranks: elements, evenly, or complete parameters: by "
                 "layer or by size",
                 one_of({"elements", "layer", "parameter_size"}))
          .field("shard_size", &T::shard_size,
                 "ranks that divide what trainer.strategy=zero1 to zero3 shard; each group of as many ranks has all of it: a number that "
                 "divides theirs; auto: the ranks of one machine, if all have as many")
          .field("overlap", &T::overlap, "gradients are sent while the backward pass runs; false: after it, to measure what that hides")
          .field("bucket_mib", &T::bucket_mib, "MiB of gradients that are sent together", between(0.001, 4096))
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
  int size = 0;
  const auto* const end = shard_size.data() + shard_size.size();
  const auto [stop, error] = std::from_chars(shard_size.data(), end, size);
  check(error == std::errc() && stop == end && size >= 1 && size <= ranks && ranks % size == 0, ErrorKind::Usage, "dist.shard_size", "'",
        shard_size, "' of ", ranks, " ranks; allowed: auto, or a number that divides that of ranks");
  check(sharding != Sharding::None || size == ranks, ErrorKind::Usage, "dist.shard_size", shard_size,
        " is for shards, of which trainer.strategy=ddp has none; allowed with it: auto");
  return size;
}

DistOptions DistOptions::resolved(const std::string& transport, Sharding sharding) const {
  auto out = *this;
  const auto compressed = Compression::parse(compression);
  const bool by_micro_batch = sharding >= Sharding::Gradients && reduction != "native" && !compressed.carries_errors();
  if (reduce == "auto") out.reduce = by_micro_batch ? "micro_batch" : "window";
  // With shards an ordered sum sends half of what the native one does, which every rank gets all of.
  const bool needs_order = out.reduce == "micro_batch" || reduce_dtype == "bf16" || !compressed.none() || sharding != Sharding::None;
  if (reduction == "auto") out.reduction = transport == ProcessGroup::kHostTransport || needs_order ? "ordered" : "native";
  return out;
}

Compression DistOptions::compressed() const {
  const auto out = Compression::parse(compression);
  if (out.none()) return out;
  check(reduction != "native", ErrorKind::Usage, "dist.compression",
        "compressed gradients are added in fp32 and in the order of ranks, which "
        "dist.reduction=native does not do; allowed: auto, ordered");
  check(reduce_dtype == "fp32", ErrorKind::Usage, "dist.compression",
        "dist.reduce_dtype=bf16 is the same as dist.compression=bf16; use one of them");
  check(!out.carries_errors() || reduce != "micro_batch", ErrorKind::Usage, "dist.compression", compression,
        " compresses the sum of a window; allowed with dist.reduce=micro_batch: none, bf16, fp16");
  return out;
}

}  // namespace npu_train
