/// Activation checkpointing, which saves memory and costs time: tensors that a piece of a network saves for its backward pass are dropped
/// after the forward and recomputed in the backward pass (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). As in
/// torch.utils.checkpoint with use_reentrant=False, no nested backward pass is needed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace npu_train {

struct CheckpointingOptions {
  /// Your own tensors that `fn` changes in place. Only the forward changes them: after the recomputation, they get back the values that
  /// they had before it. Running statistics and batch counters of normalisation layers are included automatically.
  std::vector<at::Tensor> buffers;
};

/// Computes fn(inputs), and keeps only the inputs for the backward pass.
///
///   at::Tensor forward(const at::Tensor& x) {
///     return npu_train::checkpoint([&](const at::Tensor& t) { return block->forward(t); }, x);
///   }
///
/// Gradients are bit-equal to those of fn(inputs) itself: the recomputation has the forward's random numbers (of the CPU's generator and of
/// the inputs' devices), autocast state and inputs. Inputs need not require gradients; parameters that `fn` captures receive their
/// gradients. Calls nest, and a retained graph can run again. Hooks on parameters fire once, as data-parallel reducers require. Objects
/// that `fn` refers to must live until the backward pass, and each call of `fn` must compute the same.
///
/// libtorch's modules have no hooks, so a module cannot be checkpointed from outside: call this in your forward, or give a Model `blocks`.
/// Without gradient mode, returns fn(inputs). Error(Usage) from the backward pass if the recomputation differs from the forward.
std::vector<at::Tensor> checkpoint(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
                                   const std::vector<at::Tensor>& inputs, const CheckpointingOptions& options = {});

/// Overload for one input and one output.
at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& input,
                      const CheckpointingOptions& options = {});

}  // namespace npu_train
