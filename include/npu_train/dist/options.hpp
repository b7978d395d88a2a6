/// Options of distributed training.
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

/// State that ranks divide among themselves instead of replicating it (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054). Each level
/// includes the levels before it.
enum class Sharding {
  None,
  Optimizer,   ///< optimizer state and weight averages: ZeRO-1
  Gradients,   ///< the sums of gradients: ZeRO-2
  Parameters,  ///< the parameters, which are complete only while they are needed: ZeRO-3
};

/// Names of the levels in `trainer.strategy`, in the order of Sharding.
inline constexpr std::array<const char*, 4> kStrategyNames{"ddp", "zero1", "zero2", "zero3"};
/// Returns the level of a strategy; nullopt for other names, such as single.
std::optional<Sharding> sharding_of(const std::string& strategy);

/// Section `dist`.
struct DistOptions {
  std::string preset = "none";      ///< none | communication, see of_preset(); in a file, it sets only keys that the file does not contain
  std::string backend = "auto";     ///< transport of gradients: gloo | nccl | hccl | auto: chosen by the device, gloo on a CPU
  std::string reduction = "auto";   ///< ordered: all_to_all, sum in rank order, all_gather | native: the transport's all_reduce | auto:
                                    ///< native on nccl and hccl if all other options allow it, else ordered
  std::string group_size = "none";  ///< number of ranks per group: none | N | auto: the ranks of one machine. Gradients are added inside
                                    ///< each group, then between the first ranks of the groups, which send the sums back. Groups select
                                    ///< native sums
  std::string reduce = "auto";  ///< window: reduced once per window | micro_batch: once per micro-batch, in order | auto: micro_batch with
                                ///< sharded gradients if the other options allow it, else window
  std::string reduce_dtype = "fp32";  ///< dtype of fp32 gradients when sent: fp32 | bf16 (half the bytes; added in fp32, rounded twice)
  std::string compression = "none";   ///< Compression::parse(): none | bf16 | fp16 | int8 | topk:SHARE | ratio:R | powersgd:RANK; after
                                      ///< topk and ratio, "+" and a value encoding may follow; no effect in one process
  int64_t compression_start = 0;      ///< number of steps at the start of a run that send uncompressed gradients
  std::string shard_by = "elements";  ///< what zero1 and zero2 divide among ranks: elements (evenly) | layer, parameter_size: complete
                                      ///< parameters, as shards_of() assigns them with one shard per rank
  std::string shard_size = "auto";    ///< number of ranks among which zero1 to zero3 divide the state; each group of that size has a copy
                                      ///< (HSDP): N | auto: the ranks of one machine if all machines have equally many, else all ranks
  std::string offload = "none";  ///< none | optimizer: the optimizer runs on the host; the host has its state, the masters that it updates
                                 ///< and the weight averages, the device only parameters and gradients
  bool overlap = true;           ///< buckets are sent during the backward pass; false: after it, to measure how much time overlap hides
  double bucket_mib = 25;        ///< size of a bucket; the first one has an eighth of this size
  int64_t in_flight = 0;         ///< maximum number of buckets that are sent at the same time; 0: no limit
  double timeout = 300;          ///< seconds that a collective waits for other ranks
  int64_t check_every = 0;       ///< steps between comparisons of the weights and operators of all ranks; 0: none
  bool debug = false;            ///< compares every collective with those of the other ranks before it runs; slow
  static const ConfigTable<DistOptions>& config_table();

  /// Returns the members that a preset sets, by key. `communication` reduces traffic between machines: it forms groups of 8 ranks, sends
  /// only the largest elements between groups, in 8 bits, and has at most four buckets in flight. Error(Usage) for an unknown name.
  static ConfigNode preset_values(const std::string& preset);
  /// Returns the options of a preset. Programs need this function, because setting `preset` itself changes no other member.
  static DistOptions of_preset(const std::string& preset);

  /// Returns these options with auto resolved in `reduction` and `reduce`, for gradients that `transport` sends (ProcessGroup::transport).
  DistOptions resolved(const std::string& transport, Sharding sharding = Sharding::None) const;
  /// Parses `compression`. Error(Usage) if it is not valid, or contradicts another option.
  Compression compressed() const;
  /// Resolves `shard_size` for a group. Error(Usage) unless it divides the number of ranks; without sharding, it must equal that number.
  int shard_size_of(const ProcessGroup& group, Sharding sharding) const;
  /// Throws Error(Usage) if `group_size` is not valid, or contradicts another option.
  void check_groups() const;
  /// Resolves `group_size`: ranks per group (the last group may be smaller), or all ranks if there is only one group.
  int group_size_of(const ProcessGroup& group) const;
  bool has_groups() const { return group_size != "none"; }
  bool adds_in_order() const { return reduction == "ordered"; }  ///< valid for resolved() options
};

/// Throws Error(Usage) if the collectives of `device` do not support the number of ranks or the options (DeviceCapabilities), because the
/// run would fail on the hardware. `local_ranks`: number of ranks on one machine.
void check_collectives(int local_ranks, const Device& device, const DistOptions& options);

}  // namespace npu_train
