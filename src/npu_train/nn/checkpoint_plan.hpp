/// Selects the blocks of a Model that the backward pass recomputes: `trainer.gradient_checkpointing`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Parsed form of none | blocks | every:N | budget:2GiB.
struct CheckpointPlan {
  enum class Kind { None, Blocks, Every, Budget };
  Kind kind = Kind::None;
  int64_t every = 1;   ///< number of blocks that are recomputed together
  int64_t budget = 0;  ///< limit on the bytes of activations that are alive at once

  /// Parses the option, with sizes as in parse_bytes(). Error(Usage) for other text.
  static CheckpointPlan parse(const std::string& text);
};

/// Measured cost of a block.
struct BlockCost {
  std::string name;
  int64_t input_bytes = 0;  ///< bytes of the input, which is kept for the backward pass in any case
  int64_t saved_bytes = 0;  ///< further bytes that are kept if the block is not checkpointed, without parameters
  int64_t flops = 0;        ///< cost of the forward, and therefore of a recomputation
};

/// Measures the cost of each block. Runs the blocks in training mode on `small(n)`, a batch of n samples whose first field enters the
/// blocks, for n = 2 and 3, and extrapolates to `batch` samples. Running statistics, random numbers and gradients stay unchanged. The
/// caller opens the precision's scope.
std::vector<BlockCost> block_costs(const Model& model, const std::function<Batch(int64_t)>& small, int64_t batch);

/// Chooses blocks to recompute so that the peak stays within `budget` with few recomputed FLOPs: greedily by bytes saved per FLOP. The last
/// block is never chosen: its backward follows its forward at once, so recomputing it saves nothing. If the budget is too small, all other
/// blocks are chosen.
std::vector<bool> choose_checkpoints(const std::vector<BlockCost>& costs, int64_t budget);

/// Returns the largest number of bytes that are alive at once if the marked blocks are recomputed.
int64_t peak_bytes(const std::vector<BlockCost>& costs, const std::vector<bool>& recomputed);

/// Returns the model with checkpoint() around the marked blocks, up to `every` consecutive ones together. Error(Usage) for a model without
/// blocks.
Model with_checkpoints(Model model, const std::vector<bool>& recomputed, int64_t every = 1);

}  // namespace npu_train
