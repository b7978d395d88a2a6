/// Batch normalisation over the batches of several processes, like torch.nn.SyncBatchNorm, for the batch_norm of any module.
///
///   auto gather = [group](const at::Tensor& own) { return group->gather("batch_norm", own); };  // a ProcessGroup
///   const npu_train::SyncBatchNorm synced(gather);
///   loss = loss_fn(model->forward(x), y);  // the backward may run after the scope has ended
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace npu_train {

/// In its scope, each batch_norm in training mode on this thread normalises by the statistics of all ranks' samples, and updates its
/// running statistics with them. Gradients are those of the sum of the ranks' losses, as in data-parallel training. Scopes nest; the
/// innermost one applies. checkpoint() repeats its function in the scope of the first call.
///
/// All ranks must run the same layers in the same order, also in the backward. Batch sizes may differ. Sums are added in rank order in the
/// dtype of the gathered numbers: all ranks get equal bits, but not the bits of one process with one large batch. If the numbers are
/// gathered on the device, nothing waits for the host. Does not cover instance_norm, nor code that calls native_batch_norm or
/// cudnn_batch_norm directly.
class SyncBatchNorm {
 public:
  /// Sends `own` [n] to the other ranks, and returns the numbers of every rank that has a batch, [ranks, n] in rank order, on any device,
  /// in fp32 or fp64. Called in the forward pass with 1 + 2C numbers for C channels, and in the backward pass with 2C. `own` is on the
  /// input's device, in fp64 on a CPU or a CUDA device, otherwise in fp32.
  using Gather = std::function<at::Tensor(const at::Tensor& own)>;

  explicit SyncBatchNorm(Gather gather);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  /// The active scope of a thread, captured to enter it again later or on another thread.
  class State {
   public:
    /// Captures the current state.
    State();
    class Scope;

   private:
    std::shared_ptr<const Gather> gather_;
  };

 private:
  class Mode;
  std::unique_ptr<Mode> mode_;
};

/// Re-enters the scope of `state`, if there was one.
class SyncBatchNorm::State::Scope {
 public:
  explicit Scope(const State& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::unique_ptr<SyncBatchNorm> synced_;
};

}  // namespace npu_train
