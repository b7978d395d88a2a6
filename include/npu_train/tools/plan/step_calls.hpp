/// The collectives that ranks call in one training step, by strategy: sizes and order of those of GradientReducer (room dist).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/dist/options.hpp"

namespace npu_train {

/// The work of a step.
struct StepWork {
  struct Parameter {
    int64_t elements = 0;
    int64_t element_bytes = 4;  ///< of what the optimizer updates, and of its gradient
    int64_t model_bytes = 4;    ///< of an element that the model computes with, which differs for masters
    bool has_master = false;    ///< the optimizer updates an fp32 master, of which ranks keep slices with zero1 and zero2 too
    double ready = 1;           ///< share of the backward pass after which its gradient is complete
    size_t unit = 0;            ///< the block that has it, from 1; 0: none
    int64_t rows = 0;           ///< size of its first dimension, if it has several; 0: it is no matrix
  };
  std::string model{};
  double flops = 0;                     ///< of the forward pass of one sample; the backward pass has twice as many
  double recomputed = 0;                ///< share of them that the backward pass computes again (trainer.gradient_checkpointing)
  int64_t batch = 1;                    ///< samples of a micro-batch
  int64_t micro_batches = 1;            ///< of a window
  double state_bytes = 0;               ///< of the optimizer's state and of averages of the weights
  std::vector<Parameter> parameters{};  ///< that are trained, in their order
  std::vector<double> units{};          ///< share of `flops` of each block, in order
  DistOptions dist{};
  bool divides_parameters = true;  ///< zero3 is possible: nothing of the configuration excludes it
  bool between_devices = false;    ///< a transport connects the devices (NCCL, HCCL); otherwise Gloo carries host memory

  double parameter_bytes() const;
};

/// How ranks divide the work.
struct Placement {
  std::string strategy = "single";  ///< single, ddp, zero1, zero2, zero3
  int ranks = 1;
  int shard_size = 0;  ///< ranks that divide what is in shards; 0: all
  int group_size = 0;  ///< ranks that add inside a group first; 0: no groups. From `ranks` on they are one group, with native sums

  int shards() const { return shard_size == 0 ? ranks : shard_size; }
  /// Groups that add inside first; the last one may be smaller.
  int groups() const { return group_size == 0 ? 1 : (ranks + group_size - 1) / group_size; }
  bool operator==(const Placement&) const = default;
};

/// One collective.
struct StepCall {
  enum class Kind { AllToAll, AllReduce, AllGather, Reduce, Distribute };
  Kind kind = Kind::AllToAll;
  int64_t bytes = 0;        ///< of the complete buffer: the output of all_gather, the input of the others
  int ranks = 1;            ///< that take part
  int stride = 1;           ///< from one of them to the next: 1 for neighbours, more for one rank of each group
  bool of_leaders = false;  ///< the first ranks of groups make it, the others do not
  bool operator==(const StepCall&) const = default;
};

/// Those of a step, by the place where they are called.
struct StepCalls {
  struct Bucket {
    double ready = 1;   ///< share of the backward pass after which it is complete
    size_t unit = 0;    ///< with zero3: whose gradients it has
    int64_t bytes = 0;  ///< of its gradients in memory, padded
    StepCall exchange{};
    std::vector<StepCall> then{};  ///< after the exchange of the last micro-batch, each when the one before has arrived
  };
  std::vector<Bucket> buckets{};               ///< in the order in which they are sent
  bool every_micro_batch = false;              ///< buckets are exchanged after each micro-batch, not once in a window
  std::vector<std::vector<StepCall>> units{};  ///< with zero3: what brings the parameters of the root (first) and of each block
  std::vector<StepCall> after{};               ///< with zero1 and zero2: what gathers parameters after the step
  int64_t agreements = 0;                      ///< small gathers over all ranks
};

/// `dist.group_size` as Placement has it, where each machine has `per_machine` of the ranks. Error(Usage) if it is not valid.
int group_size_of(const DistOptions& dist, int ranks, int per_machine);

/// Of `work.dist` the placement replaces shard_size and group_size. Error(Usage) for an unknown strategy, a shard size that does not divide
/// the ranks, what the engine refuses with native sums, and options that are not modelled: dist.shard_by other than elements, and
/// dist.offload.
StepCalls step_calls(const StepWork& work, const Placement& placement);

/// All calls that a rank makes in a window, each as often as it is made; without agreements. `leads`: the rank is the first one of its
/// group, which is not a smaller one.
std::vector<StepCall> all_calls(const StepWork& work, const Placement& placement, const StepCalls& calls, bool leads = true);

}  // namespace npu_train
