/// The collectives of one training step, by strategy. Their sizes and their order are those of GradientReducer (room dist).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/dist/options.hpp"

namespace npu_train {

/// The work of one step on one rank.
struct StepWork {
  struct Parameter {
    int64_t elements = 0;
    int64_t element_bytes = 4;  ///< bytes per element of the tensor that the optimizer updates, and of its gradient
    int64_t model_bytes = 4;    ///< bytes per element of the weight that the model computes with; differs if there is a master
    bool has_master = false;    ///< the optimizer updates an fp32 master, which zero1 and zero2 also divide among the ranks
    double ready = 1;           ///< share of the backward pass after which the gradient is complete
    size_t unit = 0;            ///< number of the block that contains the parameter, from 1; 0: none
    int64_t rows = 0;           ///< size of the first dimension of a parameter with several dimensions; 0: not a matrix
  };
  std::string model{};
  double flops = 0;                     ///< FLOPs of the forward pass of one sample; a backward pass has twice as many
  double recomputed = 0;                ///< share of `flops` that the backward pass recomputes (trainer.gradient_checkpointing)
  int64_t batch = 1;                    ///< samples per micro-batch
  int64_t micro_batches = 1;            ///< micro-batches per window
  double state_bytes = 0;               ///< bytes of the optimizer state and of averaged weights
  std::vector<Parameter> parameters{};  ///< the trained parameters, in model order
  std::vector<double> units{};          ///< share of `flops` in each block, in order
  DistOptions dist{};
  bool divides_parameters = true;  ///< zero3 is possible: the configuration has no option that excludes it
  bool between_devices = false;    ///< NCCL or HCCL connects the devices; otherwise Gloo, through host memory
  bool in_rings = false;           ///< HCCL connects 1, 2, 4 or 8 devices of a machine (910A)

  double parameter_bytes() const;
};

/// The division of the work among ranks.
struct Placement {
  std::string strategy = "single";  ///< single, ddp, zero1, zero2, zero3
  int ranks = 1;
  int shard_size = 0;  ///< number of ranks that divide the sharded tensors; 0: all
  int group_size = 0;  ///< ranks of a group, which adds its gradients first; 0: no groups; `ranks` or more: one group, with native sums

  int shards() const { return shard_size == 0 ? ranks : shard_size; }
  /// Number of groups; the last one may be smaller.
  int groups() const { return group_size == 0 ? 1 : (ranks + group_size - 1) / group_size; }
  bool operator==(const Placement&) const = default;
};

/// One collective.
struct StepCall {
  enum class Kind { AllToAll, AllReduce, AllGather, Reduce, Distribute };
  Kind kind = Kind::AllToAll;
  int64_t bytes = 0;        ///< complete buffer: the output of an all-gather, the input of any other collective
  int ranks = 1;            ///< participating ranks
  int stride = 1;           ///< distance between participating ranks: 1 for neighbours, larger for one rank of each group
  bool of_leaders = false;  ///< only the first ranks of groups take part
  bool operator==(const StepCall&) const = default;
};

/// The collectives of a step, by the place where they are called.
struct StepCalls {
  struct Bucket {
    double ready = 1;   ///< share of the backward pass after which the bucket is complete
    size_t unit = 0;    ///< zero3: the block whose gradients the bucket has
    int64_t bytes = 0;  ///< padded gradients in memory
    StepCall exchange{};
    std::vector<StepCall> then{};  ///< calls after the exchange of the last micro-batch; each one starts when the one before it has ended
  };
  std::vector<Bucket> buckets{};               ///< in sending order
  bool every_micro_batch = false;              ///< buckets are exchanged after each micro-batch instead of once per window
  std::vector<std::vector<StepCall>> units{};  ///< zero3: gathers of parameters, first of those outside of blocks, then of each block
  std::vector<StepCall> after{};               ///< zero1 and zero2: gathers of parameters after the optimizer step
  int64_t agreements = 0;                      ///< small gathers over all ranks
};

/// Resolves `dist.group_size` to Placement::group_size for machines with `per_machine` ranks. Error(Usage) if it is not valid.
int group_size_of(const DistOptions& dist, int ranks, int per_machine);

/// Returns the collectives of one step. `placement` replaces shard_size and group_size of `work.dist`. Error(Usage) for an unknown
/// strategy, a shard size that does not divide the ranks, options that the engine refuses with native sums, and options that are not
/// modelled: dist.offload, and dist.shard_by other than elements.
StepCalls step_calls(const StepWork& work, const Placement& placement);

/// Returns all collectives that a rank calls in one window, without agreements; a call that is made several times appears several times.
/// `leads`: whether the rank is the first one of a full group.
std::vector<StepCall> all_calls(const StepWork& work, const Placement& placement, const StepCalls& calls, bool leads = true);

}  // namespace npu_train
