#include "npu_train/dist/options.hpp"

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
                 "auto: native on NCCL and HCCL, unless reduce or reduce_dtype needs an order; ordered on Gloo",
                 one_of({"auto", "ordered", "native"}))
          .field("reduce", &T::reduce,
                 "gradients are sent once per window, or after each micro-batch (equal to one process for any number); auto: window, with "
                 "trainer.strategy=zero2 and zero3 micro_batch",
                 one_of({"auto", "window", "micro_batch"}))
          .field("reduce_dtype", &T::reduce_dtype,
                 "fp32 gradients travel in it; bf16: half the bytes, sums in fp32, with other bits than one process; not with native",
                 one_of({"fp32", "bf16"}))
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

DistOptions DistOptions::resolved(const std::string& transport, Sharding sharding) const {
  auto out = *this;
  if (reduce == "auto") out.reduce = sharding >= Sharding::Gradients && reduction != "native" ? "micro_batch" : "window";
  // With shards an ordered sum sends half of what the native one does, which every rank gets all of.
  const bool needs_order = out.reduce == "micro_batch" || reduce_dtype == "bf16" || sharding != Sharding::None;
  if (reduction == "auto") out.reduction = transport == ProcessGroup::kHostTransport || needs_order ? "ordered" : "native";
  return out;
}

}  // namespace npu_train
