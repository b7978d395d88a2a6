/// Activation checkpointing: less memory for more time. What a piece of a network keeps for its backward pass is dropped after the
/// forward and computed again when the backward pass arrives (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; the form
/// without a second backward pass inside the first is torch.utils.checkpoint with use_reentrant=False).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace npu_train {

struct CheckpointingOptions {
  /// Tensors of your own that `fn` changes in place: they change once, in the forward, and are restored after the recomputation. Running
  /// statistics and batch counters of normalisation layers need not be named.
  std::vector<at::Tensor> buffers;
};

/// fn(inputs), of which the backward pass keeps the inputs alone.
///
///   at::Tensor forward(const at::Tensor& x) {
///     return npu_train::checkpoint([&](const at::Tensor& t) { return block->forward(t); }, x);
///   }
///
/// Gradients are bit-equal to those of fn(inputs) itself: the recomputation sees the random numbers (the CPU's generator and those of the
/// inputs' devices), the autocast state and the inputs of the forward. Inputs need not require gradients; parameters that `fn` captures
/// get theirs; pieces nest; a graph may be kept and run again. Hooks on parameters fire once, so it works under data-parallel reducers.
/// What `fn` refers to must live until the backward pass, and `fn` must compute the same each time.
///
/// libtorch's modules have no hooks, so nothing can be checkpointed from outside: call this in your forward, or give a Model with
/// `blocks`. Without gradient mode it is fn(inputs). Error(Usage) from the backward pass when fn computes something else the second time.
std::vector<at::Tensor> checkpoint(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
                                   const std::vector<at::Tensor>& inputs, const CheckpointingOptions& options = {});

/// The same for one tensor to one tensor.
at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& input,
                      const CheckpointingOptions& options = {});

}  // namespace npu_train
