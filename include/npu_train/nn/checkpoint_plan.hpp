/// Which blocks of a Model are computed again in the backward pass: `trainer.gradient_checkpointing`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// none | blocks | every:N | budget:2GiB.
struct CheckpointPlan {
  enum class Kind { None, Blocks, Every, Budget };
  Kind kind = Kind::None;
  int64_t every = 1;   ///< blocks of one piece
  int64_t budget = 0;  ///< bytes of activations that may be alive at once

  /// Error(Usage) for anything else; sizes as parse_bytes takes them.
  static CheckpointPlan parse(const std::string& text);
};

/// What a block costs, measured by running it.
struct BlockCost {
  std::string name;
  int64_t input_bytes = 0;  ///< kept where the block is checkpointed
  int64_t saved_bytes = 0;  ///< kept for the backward pass where it is not, without parameters and the input
  int64_t flops = 0;        ///< of the forward, which is also the cost of a recomputation
};

/// Runs each block in training mode on `small(n)`, a batch of n samples whose first field enters the blocks, for n = 2 and 3 and
/// extrapolates to a batch of `batch`. Nothing is moved: neither running statistics, nor random numbers, nor gradients. The caller sets the
/// precision's scope.
std::vector<BlockCost> block_costs(const Model& model, const std::function<Batch(int64_t)>& small, int64_t batch);

/// The blocks to recompute so that what is alive stays within `budget` with the fewest FLOPs done twice: those first that free the most
/// bytes a FLOP. All of them where not even that is enough. The last block is never among them: its backward comes at once.
std::vector<bool> choose_checkpoints(const std::vector<BlockCost>& costs, int64_t budget);

/// Bytes alive at the worst moment when the blocks marked in `recomputed` are.
int64_t peak_bytes(const std::vector<BlockCost>& costs, const std::vector<bool>& recomputed);

/// The model with checkpoint() around the marked blocks; neighbours of one piece where `every` > 1. Error(Usage) for a model without
/// blocks.
Model with_checkpoints(Model model, const std::vector<bool>& recomputed, int64_t every = 1);

}  // namespace npu_train
