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
    double ready = 1;           ///< share of the backward pass after which its gradient is complete
    size_t unit = 0;            ///< the block that has it, from 1; 0: none
  };
  std::string model{};
  double flops = 0;                     ///< of the forward pass of one sample; the backward pass has twice as many
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

  int shards() const { return shard_size == 0 ? ranks : shard_size; }
  bool operator==(const Placement&) const = default;
};

/// One collective.
struct StepCall {
  enum class Kind { AllToAll, AllReduce, AllGather };
  Kind kind = Kind::AllToAll;
  int64_t bytes = 0;        ///< of the complete buffer: the input of all_to_all and all_reduce, the output of all_gather
  int ranks = 1;            ///< that take part
  bool is_strided = false;  ///< those with the same shard, one of each group; otherwise neighbours
  bool operator==(const StepCall&) const = default;
};

/// Those of a step, by the place where they are called.
struct StepCalls {
  struct Bucket {
    double ready = 1;   ///< share of the backward pass after which it is complete
    size_t unit = 0;    ///< with zero3: whose gradients it has
    int64_t bytes = 0;  ///< of its gradients in memory, padded
    StepCall exchange{};
    std::vector<StepCall> gather{};  ///< after the exchange of the last micro-batch; at most one
  };
  std::vector<Bucket> buckets{};               ///< in the order in which they are sent
  bool every_micro_batch = false;              ///< buckets are exchanged after each micro-batch, not once in a window
  std::vector<std::vector<StepCall>> units{};  ///< with zero3: what brings the parameters of the root (first) and of each block
  std::vector<StepCall> after{};               ///< with zero1 and zero2: what gathers parameters after the step
  int64_t agreements = 0;                      ///< small gathers over all ranks
};

/// Error(Usage) for an unknown strategy, a shard size that does not divide the ranks, and options that are not modelled: compression other
/// than none, bf16, fp16 and int8, and dist.shard_by other than elements.
StepCalls step_calls(const StepWork& work, const Placement& placement);

/// All calls of a window, each as often as it is made; without agreements.
std::vector<StepCall> all_calls(const StepWork& work, const Placement& placement, const StepCalls& calls);

}  // namespace npu_train
