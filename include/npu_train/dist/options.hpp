/// How several processes train together.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/core/config_table.hpp"
#include "npu_train/dist/compression.hpp"

namespace npu_train {

class ProcessGroup;
struct Device;

/// What ranks divide among themselves, instead of each having all of it (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054). Each level
/// divides what those before it do.
enum class Sharding {
  None,
  Optimizer,   ///< the optimizer's state and averages of weights: ZeRO-1
  Gradients,   ///< the sums of gradients: ZeRO-2
  Parameters,  ///< the parameters, which are complete only while they are needed: ZeRO-3
};

/// What `trainer.strategy` calls each level, in the order of Sharding.
inline constexpr std::array<const char*, 4> kStrategyNames{"ddp", "zero1", "zero2", "zero3"};
/// None for a name that is not among them, such as single.
std::optional<Sharding> sharding_of(const std::string& strategy);

/// Section `dist`.
struct DistOptions {
  std::string preset = "none";      ///< none | communication: of_preset(); in a file it sets the keys that the file does not have
  std::string backend = "auto";     ///< what carries gradients: gloo | nccl | hccl | auto: that of the device, gloo on a CPU
  std::string reduction = "auto";   ///< ordered: all_to_all, sum in the order of ranks, all_gather | native: the transport's all_reduce |
                                    ///< auto: native on nccl and hccl where all other options allow it, else ordered
  std::string group_size = "none";  ///< ranks that add inside a group first; then the first ones of all groups add, and each gives the
                                    ///< sum to its group: none | N | auto: those of one machine; with `reduction: native`, which it selects
  std::string reduce = "auto";      ///< window: once for each window | micro_batch: once for each micro-batch, in order | auto: window,
                                    ///< with sharded gradients micro_batch
  std::string reduce_dtype = "fp32";  ///< in which fp32 gradients travel: fp32 | bf16 (half the bytes; added in fp32, rounded twice)
  std::string compression = "none";   ///< Compression::parse(): none | bf16 | fp16 | int8 | topk:SHARE | ratio:R | powersgd:RANK, topk and
                                      ///< ratio also with "+" and a code of their values; without effect in one process
  int64_t compression_start = 0;      ///< steps at the start of a run whose gradients travel complete, before compression begins
  std::string shard_by = "elements";  ///< what zero1 and zero2 divide: elements, evenly | layer, parameter_size: complete parameters, as
                                      ///< shards_of() with a shard for each rank
  std::string shard_size = "auto";    ///< ranks that divide what zero1 to zero3 shard, and each group of as many has all of it (HSDP): a
                                      ///< number | auto: those of one machine where all have as many, else all
  std::string offload = "none";       ///< optimizer: it computes on the host, whose memory has its state, the masters that it updates and
                                      ///< averages of weights; the device has parameters and gradients alone | none
  bool overlap = true;                ///< buckets are sent while the backward pass runs; false: after it, to measure what that hides
  double bucket_mib = 25;             ///< size of a bucket; the first one has an eighth of it
  int64_t in_flight = 0;              ///< buckets that are on their way at the same time, at most; 0: no limit
  double timeout = 300;               ///< seconds that a collective waits for other ranks
  int64_t check_every = 0;            ///< steps between comparisons of the weights of all ranks; 0: none
  bool debug = false;                 ///< compares every collective with those of the other ranks before it runs; slow
  static const ConfigTable<DistOptions>& config_table();

  /// `communication`: less on links between machines. Groups of 8 ranks, between them the largest elements in 8 bits, four buckets on their
  /// way. The members that a preset sets, by their keys; Error(Usage) for a name that is not known.
  static ConfigNode preset_values(const std::string& preset);
  /// The options of a preset, for a program: `preset` alone changes no other member.
  static DistOptions of_preset(const std::string& preset);

  /// The same options without auto in `reduction` and `reduce`, for gradients that `transport` carries (ProcessGroup::transport).
  DistOptions resolved(const std::string& transport, Sharding sharding = Sharding::None) const;
  /// `compression`, parsed. Error(Usage) if it is not valid, or contradicts another option.
  Compression compressed() const;
  /// `shard_size` in a group. Error(Usage) unless it divides the number of its ranks.
  int shard_size_of(const ProcessGroup& group, Sharding sharding) const;
  /// Error(Usage) for a `group_size` that is not valid, or contradicts another option.
  void check_groups() const;
  /// `group_size` in a group: that of its groups, the last of which may be smaller; all ranks where there are no groups, or one.
  int group_size_of(const ProcessGroup& group) const;
  bool has_groups() const { return group_size != "none"; }
  bool adds_in_order() const { return reduction == "ordered"; }  ///< of resolved options
};

/// Error(Usage) for a number of ranks, or for options, that the collectives of `device` do not have (DeviceCapabilities): on the hardware
/// the run would fail. `local_ranks`: on one machine.
void check_collectives(int local_ranks, const Device& device, const DistOptions& options);

}  // namespace npu_train
